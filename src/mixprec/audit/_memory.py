"""Memory has a cause, byte by byte: an owner (weights, gradients, state), a cast of a weight, something that backward
needs, or something that is only passing through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mixprec.audit._casts import is_cast
from mixprec.audit._log import Freed, Kind, Op, Phase, Step, is_half
from mixprec.records import Location

__all__ = [
    "Line",
    "Memory",
    "SavedRow",
    "Single",
    "Twice",
    "casts_of_weights",
    "kinds",
    "main_device",
    "memory_of",
    "saved_bytes",
]


_PASSING = (Kind.CAST, Kind.SAVED)
"""Kinds that have no owner, and so no end that anybody tells of."""


@dataclass(frozen=True)
class Line:
    """Bytes of one kind and dtype."""

    kind: Kind
    dtype: str
    bytes: int


@dataclass(frozen=True)
class SavedRow:
    """Bytes that the calls of `op` in `module` keep for backward; what several keep is counted at the first."""

    module: str
    op: str
    dtype: str
    bytes: int
    tensors: int


@dataclass(frozen=True)
class Single:
    """One large tensor: what made it, where, and what it is held for."""

    bytes: int
    dtype: str
    shape: tuple[int, ...]
    op: str
    kind: Kind
    location: Location


@dataclass(frozen=True)
class Twice:
    """Float32 values that backward keeps although it keeps a 16-bit copy of them too. `bytes` are the float32 ones."""

    module: str
    op: str
    bytes: int
    tensors: int
    location: Location


@dataclass(frozen=True)
class Memory:
    """Where the memory of one step goes, in bytes on `device`.

    `lines` are full amounts, whether or not they exist at the same time; `at_peak` is what exists at the peak.
    What kernels allocate inside is not in it. `inside` is what the allocator had handed out at its own peak beyond
    `peak`: workspaces, rounding, tensors that the step does not touch; None where it was not measured. `allocated`,
    `reserved` and `fragmented` (free, in blocks that are split) are CUDA's counters, None elsewhere.
    """

    device: str
    lines: tuple[Line, ...]
    saved: tuple[SavedRow, ...]
    largest: tuple[Single, ...]
    peak: int
    peak_at: Location
    peak_phase: str
    at_peak: tuple[Line, ...]
    after_forward: int
    twice: tuple[Twice, ...] = ()
    allocated: int | None = None
    reserved: int | None = None
    fragmented: int | None = None
    inside: int | None = None

    def total(self, *of: Kind) -> int:
        """Bytes of these kinds together."""
        return sum(line.bytes for line in self.lines if line.kind in of)

    def peak_share(self, *of: Kind) -> float:
        """The part of the peak that these kinds make up."""
        return sum(line.bytes for line in self.at_peak if line.kind in of) / self.peak if self.peak else 0.0


def memory_of(step: Step) -> Memory:
    """The memory of `step`. **Cost**: pure Python, linear in the number of events."""
    device = main_device(step)
    current = {held.ref.storage for held in step.held}
    size = {n: s.bytes for n, s in step.storages.items() if s.device == device}
    kind = kinds(step)
    saved = _saved(step, size, kind)
    peak, where, alive, forward = _replay(step, size)
    return Memory(
        device=device,
        lines=_lines(step, (n for n in kind if n in size and (n in current or kind[n] in _PASSING)), size, kind),
        saved=saved,
        largest=_largest(step, size, kind),
        peak=peak,
        peak_at=_location(where),
        peak_phase=where.phase.value if where is not None else "",
        at_peak=_lines(step, (n for n in alive if n in size), size, kind),
        after_forward=forward,
        twice=_twice(step, size, kind),
    )


def main_device(step: Step) -> str:
    """The device type that computes most, `cpu` where nothing ran."""
    work: Counter[str] = Counter()
    for op in step.ops():
        for ref in op.outputs:
            storage = step.storages.get(ref.storage)
            if storage is not None:
                work[storage.device] += ref.bytes + op.flops
    return work.most_common(1)[0][0] if work else "cpu"


def kinds(step: Step) -> dict[int, Kind]:
    """What each storage is held for. An owner wins over a cast, a cast over backward's needs."""
    found = {saved.ref.storage: Kind.SAVED for saved in step.saved}
    found |= dict.fromkeys(casts_of_weights(step), Kind.CAST)
    found |= {held.ref.storage: held.kind for held in (*step.earlier, *step.held)}
    return found


def casts_of_weights(step: Step) -> dict[int, int]:
    """Storage of each 16-bit copy of a weight -> storage of the weight."""
    weights = {held.ref.storage for held in step.held if held.kind in (Kind.WEIGHT, Kind.MASTER)}
    return {
        op.outputs[0].storage: op.inputs[0].storage
        for op in step.ops(Phase.FORWARD, Phase.RECOMPUTE)
        if op.name == "_to_copy" and op.inputs and op.inputs[0].storage in weights and is_half(op.outputs[0].dtype)
    }


def _lines(step: Step, numbers: Iterable[int], size: Mapping[int, int], kind: Mapping[int, Kind]) -> tuple[Line, ...]:
    sums: Counter[tuple[Kind, str]] = Counter()
    for number in numbers:
        sums[kind.get(number, Kind.OTHER), step.storages[number].dtype] += size[number]
    rows = [Line(k, dtype, total) for (k, dtype), total in sums.items() if total]
    order = list(Kind)
    return tuple(sorted(rows, key=lambda row: (order.index(row.kind), -row.bytes)))


def _saved(step: Step, size: Mapping[int, int], kind: Mapping[int, Kind]) -> tuple[SavedRow, ...]:
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[int] = set()
    for saved in step.saved:
        number = saved.ref.storage
        if number in seen or kind.get(number) is not Kind.SAVED or number not in size:
            continue
        seen.add(number)
        row = sums[saved.module, saved.func, step.storages[number].dtype]
        row[0] += size[number]
        row[1] += 1
    rows = [SavedRow(module, op, dtype, *counts) for (module, op, dtype), counts in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _replay(step: Step, size: Mapping[int, int]) -> tuple[int, Op | None, frozenset[int], int]:
    """(peak, the op at the peak, the storages alive then, bytes at the end of the largest forward pass)."""
    alive = {n for n in step.alive if n in size}
    now = sum(size[n] for n in alive)
    peak, where, then = now, None, frozenset(alive)
    forward, in_forward = 0, False
    last: Op | None = None
    for event in step.events:
        if isinstance(event, Op):
            last = event
            backward = event.phase is Phase.BACKWARD
            if backward and in_forward:
                forward = max(forward, now)
            in_forward = event.phase is Phase.FORWARD
            for number in event.made:
                if number in size and number not in alive:
                    alive.add(number)
                    now += size[number]
            if now > peak:
                peak, where, then = now, last, frozenset(alive)
        elif isinstance(event, Freed) and event.storage in alive:
            alive.discard(event.storage)
            now -= size[event.storage]
    return peak, where, then, forward or now


def _largest(step: Step, size: Mapping[int, int], kind: Mapping[int, Kind], count: int = 10) -> tuple[Single, ...]:
    maker = {number: op for op in step.ops() for number in op.made}
    top = sorted((n for n in size if n in maker), key=lambda n: -size[n])[:count]
    return tuple(
        Single(
            size[n],
            step.storages[n].dtype,
            step.storages[n].shape,
            maker[n].func or maker[n].name,
            kind.get(n, Kind.OTHER),
            _location(maker[n]),
        )
        for n in top
    )


def _twice(step: Step, size: Mapping[int, int], kind: Mapping[int, Kind]) -> tuple[Twice, ...]:
    kept = {s.ref.storage for s in step.saved if kind.get(s.ref.storage) is Kind.SAVED and s.ref.storage in size}
    maker = {number: op for op in step.ops() for number in op.made}
    pairs: dict[int, Op] = {}
    for op in step.ops(Phase.FORWARD):
        if is_cast(op) and is_half(op.outputs[0].dtype):
            source, copy = op.inputs[0], op.outputs[0].storage
            if source.storage in kept and copy in kept and source.dtype == "float32" and source.storage in maker:
                pairs.setdefault(source.storage, maker[source.storage])
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    where: dict[tuple[str, str], Location] = {}
    for number, op in pairs.items():
        key = (op.module, op.func or op.name)
        sums[key][0] += size[number]
        sums[key][1] += 1
        where.setdefault(key, _location(op))
    rows = [Twice(*key, counts[0], counts[1], where[key]) for key, counts in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _location(op: Op | None) -> Location:
    if op is None:
        return Location()
    return Location(op.location.file, op.location.line, module=op.module or None, op=op.func or op.name)


def saved_bytes(step: Step) -> int:
    """Bytes kept for backward, each storage once, without weights and their casts."""
    kind = kinds(step)
    numbers = {s.ref.storage for s in step.saved if kind.get(s.ref.storage) is Kind.SAVED}
    return sum(step.storages[n].bytes for n in numbers)
