"""Forward: each op's inputs are cast as its rule says, its results are held, and what backward needs is kept."""

from __future__ import annotations

from mixprec.audit._log import Kind, Op, Saved, is_half, width
from mixprec.audit._simulate._ledger import Key
from mixprec.audit._simulate._rules import resized, result_of, wanted, wide_extras
from mixprec.audit._simulate._run import Run
from mixprec.audit._simulate._work import Work

__all__ = ["Forward"]


class Forward:
    """The forward ops in order. `after` is the most that was held at the end of a pass, `saved` kept for backward."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.after = 0
        self.saved = 0
        self._pending: list[Saved] = []
        self._previous: Op | None = None
        self._copies: dict[int, Key] = {}

    def kept(self, event: Saved) -> None:
        """Autograd kept a result of the last op, or an input of the next."""
        if event.output and self._previous is not None:
            _keep(self.run, event, self._previous, self._copies)
        else:
            self._pending.append(event)

    def op(self, index: int, op: Op) -> None:
        """The op runs; casts that autocast made in the record do not."""
        run = self.run
        if op.outputs and op.outputs[0].storage in run.reading.alias:
            return
        if op.made and all(number in run.reading.gathered_into for number in op.made):
            return
        self._copies = _compute(run, op)
        for saved in self._pending:
            _keep(run, saved, op, self._copies)
        self._pending, self._previous = [], op
        for key in [k for k in self._copies.values() if k not in run.kept and k[0] == "c"]:
            run.ledger.drop(key)
        _drop_unused(run, index, op)

    def end(self) -> None:
        """The pass is over: casts of weights that backward does not need are dropped with their region."""
        run, live = self.run, self.run.ledger.live
        for number in [n for n in run.cached if ("w", n) not in run.kept]:
            run.ledger.drop(("w", number))
        self.after = max(self.after, run.ledger.now)
        self.saved = max(self.saved, sum(live[key] for key in run.kept if key in live and key[0] != "w"))
        self._pending, self._previous = [], None


def _compute(run: Run, op: Op) -> dict[int, Key]:
    """The op's copies and results; which key holds each input as the op sees it."""
    rule = run.rules.of(op)
    seen: dict[int, Key] = {}
    into: list[str] = []
    moved = 0
    for ref in op.inputs:
        if ref.storage < 0:
            continue
        number = run.reading.value(ref.storage)
        has = run.dtype(number) if width(ref.dtype) else ref.dtype
        wants = wanted(rule, has, run.precision.low)
        size = resized(ref.bytes, ref.dtype, wants)
        into.append(wants if width(wants) else "")
        moved += size
        if wants == has:
            seen[ref.storage] = ("v", number)
            continue
        weight = number in run.reading.weights and is_half(wants)
        key: Key = ("w", number) if weight else ("c", number, id(op), wants)
        if key not in run.ledger.live:
            run.work.append(Work(0, wants, resized(ref.bytes, ref.dtype, has) + size))
        if weight:
            run.cached.setdefault(number, size)
        run.ledger.hold(key, size)
        seen[ref.storage] = key
    moved += _results(run, op, [d for d in into if d])
    compute = max((d for d in into if d), key=width, default="")
    first = next((d for d in into if d), "")
    run.halved[op.sequence] = run.halved.get(op.sequence, False) or is_half(first)
    if op.made or op.flops:
        run.work.append(Work(op.flops, compute, moved))
    return seen


def _results(run: Run, op: Op, into: list[str]) -> int:
    """Holds what the op makes; the bytes of all its results."""
    with_shape = [run.dtype(r.storage) for r in op.inputs if r.shape and r.storage >= 0 and width(r.dtype)]
    result = result_of(op, run.rules.of(op), run.precision.low, into, with_shape)
    if op.workspaces:
        sizes = {**dict.fromkeys(("float16",), dict(op.workspaces).get("bfloat16", 0)), **dict(op.workspaces)}
        run.workspaces[op.outputs[-1].storage] = sizes.get(result, op.outputs[-1].bytes)
    moved = 0
    for index, ref in enumerate(op.outputs):
        if ref.storage in op.made:
            wide = index > 0 and wide_extras(op) and bool(width(ref.dtype))
            run.dtypes[ref.storage] = "float32" if wide else result if width(ref.dtype) and result else ref.dtype
            run.ledger.hold(("v", ref.storage), run.size(ref.storage))
        moved += resized(ref.bytes, ref.dtype, run.dtype(ref.storage) if ref.storage >= 0 else ref.dtype)
    return moved


def _keep(run: Run, saved: Saved, op: Op, copies: dict[int, Key]) -> None:
    number = run.reading.value(saved.ref.storage)
    key = ("v", number) if saved.output else copies.get(saved.ref.storage, ("v", number))
    if key == ("v", number) and run.reading.owned.get(number) in (Kind.WEIGHT, Kind.BUFFER, Kind.MASTER):
        return
    if key[0] == "v":
        run.ledger.hold(key, run.size(number))
    run.kept[key] = min(run.kept.get(key, op.sequence), op.sequence)


def _drop_unused(run: Run, index: int, op: Op) -> None:
    """What the record kept for backward and this precision does not goes when nothing more is done with it."""
    reading = run.reading
    for ref in (*op.inputs, *op.outputs):
        number = reading.value(ref.storage) if ref.storage >= 0 else -1
        done = reading.last_use.get(number) == index and ("v", number) not in run.kept
        if done and number in reading.saved and number in reading.inner:
            run.ledger.drop(("v", number))
