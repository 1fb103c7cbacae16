"""A cast between floating-point dtypes is an op like any other here; who made it, how often and how much is counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mixprec.audit._log import Event, Kind, Mark, Op, Phase, Step, width
from mixprec.records import Location

__all__ = ["CastRow", "Casts", "Repeat", "Spread", "casts_of", "is_cast"]


@dataclass(frozen=True)
class CastRow:
    """Casts with one cause. `what` is cast: a weight, an activation or a gradient; `explicit` ones the script wrote."""

    what: str
    source: str
    target: str
    op: str
    explicit: bool
    location: Location
    count: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Repeat:
    """The same tensor cast to the same dtype more than once before it changed: `extra` times too often."""

    what: str
    name: str
    target: str
    extra: int
    bytes: int
    regions: int
    location: Location


@dataclass(frozen=True)
class Spread:
    """A cast that wrote far more than its input holds, because the input is an expanded view."""

    shape: tuple[int, ...]
    source: str
    target: str
    held: int
    written: int
    location: Location


@dataclass(frozen=True)
class Casts:
    """All casts of a step. `bytes` are read and written; `seconds` is time on the host."""

    count: int
    bytes: int
    seconds: float
    rows: tuple[CastRow, ...]
    repeats: tuple[Repeat, ...]
    spreads: tuple[Spread, ...]


def casts_of(step: Step) -> Casts:
    """The casts of `step`. **Cost**: pure Python, linear in the number of events."""
    casts = [op for op in step.ops() if is_cast(op)]
    return Casts(
        count=len(casts),
        bytes=sum(_moved(op) for op in casts),
        seconds=sum(op.seconds for op in casts),
        rows=_rows(step, casts),
        repeats=tuple(sorted(_repeats(step), key=lambda r: -r.bytes)),
        spreads=tuple(sorted(_spreads(step), key=lambda s: -s.written)),
    )


def is_cast(op: Op) -> bool:
    """Whether `op` turns one floating-point dtype into another, in memory of its own."""
    if op.name != "_to_copy" or not op.inputs or not op.outputs:
        return False
    source, target = op.inputs[0].dtype, op.outputs[0].dtype
    return source != target and bool(width(source)) and bool(width(target))


def _moved(op: Op) -> int:
    return op.inputs[0].bytes + op.outputs[0].bytes


def _what(step: Step, op: Op) -> str:
    if op.phase in (Phase.BACKWARD, Phase.OPTIMIZER):
        return "gradient" if op.phase is Phase.BACKWARD else "optimizer"
    return "weight" if op.inputs[0].storage in _weights(step) else "activation"


def _weights(step: Step) -> dict[int, str]:
    return {h.ref.storage: h.name for h in step.held if h.kind in (Kind.WEIGHT, Kind.MASTER)}


def _rows(step: Step, casts: list[Op]) -> tuple[CastRow, ...]:
    weights = _weights(step)
    grouped: dict[tuple[str, ...], list[Op]] = defaultdict(list)
    for op in casts:
        what = "weight" if op.inputs[0].storage in weights and op.phase is Phase.FORWARD else _what(step, op)
        grouped[what, op.inputs[0].dtype, op.outputs[0].dtype, op.func, op.module].append(op)
    rows = []
    for (what, source, target, func, module), ops in grouped.items():
        location = replace(ops[0].location, module=module or None, op=func or None)
        seconds = sum(op.seconds for op in ops)
        moved = sum(map(_moved, ops))
        rows.append(CastRow(what, source, target, func, ops[0].explicit, location, len(ops), moved, seconds))
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def _repeats(step: Step) -> Iterator[Repeat]:
    """Counted between two backward passes or optimizer steps: in between, no weight changes."""
    weights = _weights(step)
    total: dict[tuple[int, str, tuple[int, ...]], list[Op]] = {}
    extra: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
    for window in _windows(step.events):
        seen: Counter[tuple[int, str, tuple[int, ...]]] = Counter()
        for op in window:
            if is_cast(op) and op.phase is Phase.FORWARD:
                key = (op.inputs[0].storage, op.outputs[0].dtype, op.inputs[0].shape)
                seen[key] += 1
                total.setdefault(key, []).append(op)
        extra.update({key: count - 1 for key, count in seen.items() if count > 1})
    for key, count in extra.items():
        ops = total[key]
        storage, target, _ = key
        yield Repeat(
            what="weight" if storage in weights else "activation",
            name=weights.get(storage, ""),
            target=target,
            extra=count,
            bytes=count * _moved(ops[0]),
            regions=len({op.region for op in ops}),
            location=replace(ops[-1].location, module=ops[-1].module or None, op=ops[-1].func or None),
        )


def _windows(events: tuple[Event, ...]) -> Iterator[list[Op]]:
    window: list[Op] = []
    for event in events:
        if isinstance(event, Op):
            window.append(event)
        elif isinstance(event, Mark) and event.what in ("backward", "step"):
            yield window
            window = []
    yield window


def _spreads(step: Step) -> Iterator[Spread]:
    for op in step.ops(Phase.FORWARD, Phase.RECOMPUTE):
        if not is_cast(op) or not op.inputs[0].expanded:
            continue
        source, result = op.inputs[0], op.outputs[0]
        held = step.storages[source.storage].bytes if source.storage in step.storages else source.bytes
        location = replace(op.location, module=op.module or None, op=op.func or None)
        yield Spread(source.shape, source.dtype, result.dtype, held, result.bytes, location)
