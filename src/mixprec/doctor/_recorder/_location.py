"""The location arm: some iterations run under the tracer, everything before them as in the arm that it repeats."""

from __future__ import annotations

import io
import math
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from mixprec._trace import Tracer, flushes, locate, room, source_line
from mixprec.doctor._arm import TracedOp
from mixprec.doctor._recorder._patterns import cancels, drawn_in_half
from mixprec.doctor._recorder._scene import Scene
from mixprec.formats import find_format
from mixprec.records import OpRecord, TensorStats

__all__ = ["Locator", "singled_out", "traced"]

LOW = ("float16", "bfloat16")
MOST = 8
"""Ops of one role that are written."""


class Locator:
    """Enters the tracer at each of `iterations` (0: at once), leaves it after it; after the last calls `enough`.

    **Cost** nothing before; then about 0.1 ms per op on the CPU.
    """

    def __init__(self, scene: Scene, iterations: Iterable[int], enough: Callable[[], None]) -> None:
        self._scene = scene
        self._waiting = sorted(set(iterations))
        self._iteration = 0
        self._enough = enough
        self._tracer: Tracer | None = None
        self.scale: float | None = None
        self.model: nn.Module | None = None
        self.settle()

    def settle(self) -> None:
        """Called between two calls of the protocol: an iteration may have ended, another may begin."""
        if self._tracer is not None and self._scene.iteration > self._iteration:
            self.finish()
            if not self._waiting:
                self._enough()
        if self._tracer is None and self._waiting and self._scene.iteration >= self._waiting[0]:
            self._waiting.pop(0)
            self._iteration = self._scene.iteration
            self._tracer = Tracer(self.model, keep="all", exact=True)
            self._tracer.__enter__()

    def finish(self) -> None:
        """Leaves the tracer and writes what it singles out; a second call does nothing."""
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            return
        tracer.__exit__(None, None, None)
        for role, record, measures in singled_out(tracer.records, tracer.failed, self.scale or 1.0):
            self._scene.writer.record(self._traced(role, record, measures))
        self._say_room(tracer)

    def _traced(self, role: str, record: OpRecord, measures: tuple[float, ...]) -> TracedOp:
        line = source_line(record.location)
        constants = tuple(_numbers(line))
        return TracedOp(role, record, self._iteration, line, constants, measures, self._scene.writer.rank)

    def _say_room(self, tracer: Tracer) -> None:
        found = room(tracer.records, self.scale or 1.0)
        self._scene.writer.fact(
            "room",
            {
                "scale": found.scale,
                "ceiling": found.ceiling,
                "floor": found.floor,
                "at_any_scale": found.at_any_scale is not None,
                "iteration": self._iteration,
            },
        )
        self._scene.writer.fact("traced_ops", tracer.ops)
        self._scene.writer.fact("compiled", tracer.compiled)


def singled_out(
    records: Sequence[OpRecord], failed: OpRecord | None, scale: float
) -> Iterator[tuple[str, OpRecord, tuple[float, ...]]]:
    """(role, op, measures) of every op that says something, as `TracedOp` describes them."""
    by_index = {record.index: record for record in records}
    origin = locate(records)
    accused = {
        "first_inf": origin.first_inf,
        "first_nan": origin.first_nan,
        "nan_from_inf": origin.nan_from_inf,
        "given": None if origin.given is None or _received(origin.given) else origin.given,
        "failed": failed,
    }
    for role, record in accused.items():
        if record is not None:
            yield role, record, ()
    for record in _sources([r for r in accused.values() if r is not None], by_index):
        yield "source", record, ()
    for record in origin.hidden[:MOST]:
        yield "hidden", record, ()
    lost = sorted(flushes(records, scale), key=lambda flush: -(flush.zeroed + flush.subnormal / 2))
    for flush in lost[:MOST]:
        yield "flush", flush.record, (flush.zeroed, flush.subnormal, flush.keeping_scale)
    for role, chosen in (
        ("stagnant", (r for r in records if _stagnant(r, by_index))),
        ("saturating", (r for r in records if _saturating(r, by_index))),
        ("mixed", filter(_mixed, records)),
        ("hides", filter(_hides, records)),
        ("cancels", (r for r in records if cancels(r, by_index))),
        ("noise", filter(drawn_in_half, records)),
        ("largest", _largest(records)),
    ):
        for record, _ in zip(chosen, range(MOST), strict=False):
            yield role, record, ()


def _received(record: OpRecord) -> bool:
    """Whether the op took over a gradient that no line of the script led to: what another rank sent (FSDP)."""
    return record.phase == "backward" and record.location.file is None


def _sources(accused: Iterable[OpRecord], by_index: dict[int, OpRecord]) -> list[OpRecord]:
    found = {i: by_index[i] for record in accused for i in record.sources if i is not None and i in by_index}
    return list(found.values())[:MOST]


def _packet(record: OpRecord) -> str:
    return record.op.split(".")[1] if record.op.count(".") else record.op


LOOP = 16
"""Additions of one chain on one line that make it a running sum."""
SMALL = 16
"""A tensor of up to so many elements that lives on is a metric, a larger one an average of weights."""


def _stagnant(record: OpRecord, by_index: dict[int, OpRecord]) -> bool:
    """An accumulator in 16 bits to which what is added is less than its last place."""
    if not record.outputs or record.outputs[0].dtype not in LOW or record.phase not in ("forward", "optimizer"):
        return False
    counts = record.phase == "forward" and _counts_coarsely(record) and _lives_on(record, by_index)
    return counts or _averages_coarsely(record, by_index)


def _counts_coarsely(record: OpRecord) -> bool:
    """`total += value`, of a total whose neighbours are further apart than `value`."""
    if _packet(record) not in ("add_", "add") or len(record.inputs) < 2:
        return False
    before, added = record.inputs[:2]
    format_ = find_format(record.outputs[0].dtype)
    if "float" in added.dtype:
        lost = math.isfinite(before.amax) and 0 < added.amax <= format_.spacing(before.amax)
    else:  # a count, whose magnitude is not measured
        lost = before.amax > format_.max_exact_integer
    return before.dtype == record.outputs[0].dtype and before.numel <= SMALL and lost


def _lives_on(record: OpRecord, by_index: dict[int, OpRecord]) -> bool:
    """Whether the total comes from an earlier iteration, or from many additions on the same line."""
    line = record.location.line
    for _ in range(LOOP):
        source = record.sources[0] if record.sources else None
        if source is None:
            return True
        if source not in by_index or by_index[source].op != record.op or by_index[source].location.line != line:
            return False
        record = by_index[source]
    return True


def _averages_coarsely(record: OpRecord, by_index: dict[int, OpRecord]) -> bool:
    """A moving average whose factor for what is new is below the format's precision."""
    eps, numbers = find_format(record.outputs[0].dtype).eps, dict(record.scalars)
    if max(out.numel for out in record.outputs) <= SMALL:
        return False
    if _packet(record) in ("lerp", "lerp_", "_foreach_lerp_"):
        return 0 < _number(numbers.get("weight")) < eps
    if _packet(record) not in ("add", "add_"):
        return False
    kept = [_factor(by_index.get(index)) for index in record.sources if index is not None]
    new = _number(numbers.get("alpha")) or (min(kept) if len(kept) > 1 else 0.0)
    return 0 < new < eps and any(abs(factor + new - 1.0) < 1e-3 for factor in kept)


def _factor(record: OpRecord | None) -> float:
    """The number that an op multiplied by, 0 if it did not."""
    if record is None or _packet(record) not in ("mul", "mul_"):
        return 0.0
    return next((_number(value) for name, value in record.scalars if name == "other"), 0.0)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _saturating(record: OpRecord, by_index: dict[int, OpRecord]) -> bool:
    """Positions that a 16-bit format cannot tell apart."""
    out = next((one for one in record.outputs if one.dtype in LOW), None)
    if out is None or out.amax <= find_format(out.dtype).max_exact_integer:
        return False
    if _packet(record) == "arange":
        return True
    cast = record.cast or _packet(record) == "_to_copy"
    return cast and (_are_positions(record, by_index, 4) or _all_alike(record, out))


def _all_alike(record: OpRecord, out: TensorStats) -> bool:
    """Numbers far from 0 that differ by a few units in the last place of the format at most: an offset and a count."""
    given = record.inputs[0]
    if given.zeros or given.numel < SMALL or given.amin <= find_format(out.dtype).max_exact_integer:
        return False
    return 0 < given.amax - given.amin < SMALL * find_format(out.dtype).spacing(given.amax)


def _are_positions(record: OpRecord, by_index: dict[int, OpRecord], hops: int) -> bool:
    if _packet(record) == "arange" or any("int" in stats.dtype and stats.numel > 1 for stats in record.inputs[:1]):
        return True
    if hops == 0 or not (record.cast or _packet(record) in ("_to_copy", "clone", "copy_", "mul", "unsqueeze", "outer")):
        return False
    before = [by_index[i] for i in record.sources[:1] if i is not None and i in by_index]
    return any(_are_positions(one, by_index, hops - 1) for one in before)


def _mixed(record: OpRecord) -> bool:
    """An op in forward that was given 16-bit and float32 tensors and gave float32."""
    given = {stats.dtype for stats in record.inputs if _is_tensor(stats)}
    return (
        record.phase == "forward"
        and not record.cast
        and "float32" in given
        and not given.isdisjoint(LOW)
        and any(out.dtype == "float32" for out in record.outputs)
    )


def _hides(record: OpRecord) -> bool:
    """`nan_to_num` that was given NaN or Inf and gave numbers."""
    bad = any(not stats.finite for stats in record.inputs)
    return _packet(record).startswith("nan_to_num") and bad and all(out.finite for out in record.outputs)


def _is_tensor(stats: TensorStats) -> bool:
    return bool(stats.shape)


def _largest(records: Iterable[OpRecord]) -> list[OpRecord]:
    low = [r for r in records if r.phase == "forward" and r.outputs and r.outputs[0].dtype in LOW and not r.cast]
    return sorted(low, key=lambda r: -r.outputs[0].amax)[:1]


def _numbers(line: str) -> Iterator[float]:
    """The number literals of a line of Python."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.NUMBER:
                value = float(token.string.replace("_", ""))
                if math.isfinite(value):
                    yield value
    except (tokenize.TokenError, ValueError, IndentationError):
        return


def traced(options: dict[str, Any]) -> list[int]:
    """The iterations that `options` ask to trace."""
    trace = options.get("trace") or {}
    return [int(number) for number in trace.get("iterations", [trace["iteration"]] if "iteration" in trace else [])]
