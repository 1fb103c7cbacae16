"""What autocast really did: per module and op, the dtypes that went in and came out, with the rule behind it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mixprec._policy import CastRule, Policy, op_of
from mixprec.audit._casts import is_cast
from mixprec.audit._log import Kind, Op, Phase, Ref, Step, is_half, width
from mixprec.records import Location

__all__ = ["OpRow", "Promotion", "op_rows", "promotions_of"]


@dataclass(frozen=True)
class OpRow:
    """All calls of one function in one module with the same dtypes. `casts` are those that autocast made for it.

    `bytes` are its results'. `rule` and `reason` are the policy's for the region that it ran in; outside: "".
    """

    module: str
    cls: str
    op: str
    phase: str
    into: tuple[str, ...]
    out: tuple[str, ...]
    count: int
    casts: int
    cast_bytes: int
    bytes: int
    flops: int
    seconds: float
    rule: str
    reason: str
    location: Location


@dataclass(frozen=True)
class Promotion:
    """An op outside the lists got 16-bit and float32 inputs and so gave float32. `by` names the float32 input.

    `constant` tells that it is a buffer, a weight or made on the spot, so that it could be 16-bit, `inside` that it
    happens in a module. `behind` are the
    bytes of float32 results that follow from it, `kept` those of them that backward keeps.
    """

    op: str
    by: str
    constant: bool
    inside: bool
    shape: tuple[int, ...]
    bytes: int
    behind: int
    kept: int
    location: Location


def op_rows(step: Step, policy: Policy) -> tuple[OpRow, ...]:
    """The table, in the order in which things first ran. **Cost**: pure Python, linear in the number of ops."""
    grouped: dict[tuple[str, ...], list[Op]] = {}
    casts: dict[tuple[str, ...], list[Op]] = defaultdict(list)
    for op in step.ops():
        if op.name in _NOISE:
            continue
        place = (op.phase.value, op.module, op.func or op.name)
        if is_cast(op) and not op.explicit and op.phase in (Phase.FORWARD, Phase.RECOMPUTE):
            casts[place].append(op)
            continue
        into = _dtypes([ref.dtype for ref in op.inputs])
        out = _dtypes([ref.dtype for ref in op.outputs])
        if into or out:
            grouped.setdefault((*place, ",".join(into), ",".join(out)), []).append(op)
    rows = []
    for key, ops in grouped.items():
        rows.append(_row(ops, casts.pop(key[:3], []), policy))
    return tuple(rows)


def _row(ops: list[Op], casts: list[Op], policy: Policy) -> OpRow:
    first = ops[0]
    rule, reason = _rule(first, policy)
    return OpRow(
        module=first.module,
        cls=first.cls,
        op=first.func or first.name,
        phase=first.phase.value,
        into=_dtypes([ref.dtype for ref in first.inputs]),
        out=_dtypes([ref.dtype for ref in first.outputs]),
        count=len(ops),
        casts=len(casts),
        cast_bytes=sum(op.outputs[0].bytes for op in casts),
        bytes=sum(ref.bytes for op in ops for ref in op.outputs),
        flops=sum(op.flops for op in ops),
        seconds=sum(op.seconds for op in (*ops, *casts)),
        rule=rule,
        reason=reason,
        location=Location(first.location.file, first.location.line, module=first.module or None, op=first.func or None),
    )


def _rule(op: Op, policy: Policy) -> tuple[str, str]:
    if op.phase not in (Phase.FORWARD, Phase.RECOMPUTE):
        return "", "backward runs in the dtypes of forward" if op.phase is Phase.BACKWARD else ""
    if not op.low:
        return "", "outside every autocast region"
    name = op_of(op.func) or op_of(op.name)
    if op.explicit:
        return "", "cast by the script"
    if name is None:
        return CastRule.KEEP.value, "not an op that a policy speaks of; it runs in its inputs' dtypes"
    decision = policy.explain(name, op.module or None)
    return decision.rule.value, decision.reason


def _dtypes(names: list[str]) -> tuple[str, ...]:
    """Floating-point dtypes, each once, widest first."""
    return tuple(sorted({name for name in names if width(name)}, key=lambda name: (-width(name), name)))


_NOISE = frozenset({"detach", "_record_function_enter_new", "_record_function_exit", "alias", "t", "view", "transpose"})


# ── promotion ───────────────────────────────────────────────────────────────────────────────────────────────────────

_FROM_NOTHING = "made on the spot"
_MOVES = frozenset({"_to_copy", "copy_", "embedding", "index_put_", "native_layer_norm", "native_batch_norm", "gelu"})


def promotions_of(step: Step, policy: Policy) -> tuple[Promotion, ...]:
    """Where float32 came back by type promotion, the most costly first. **Cost**: pure Python, linear."""
    return tuple(sorted(_Promotions(step, policy).found(), key=lambda p: -p.behind))


class _Promotions:
    """Follows float32 results from the op that promoted to the op that casts them down again."""

    def __init__(self, step: Step, policy: Policy) -> None:
        self.step = step
        self.policy = policy
        self.owners = {h.ref.storage: h for h in step.held if h.kind in (Kind.WEIGHT, Kind.BUFFER)}
        self.constants: dict[int, str] = {}
        self.tainted: dict[int, int] = {}
        self.first: list[tuple[Op, int, str, bool]] = []
        self.behind: dict[int, int] = defaultdict(int)
        self.kept: dict[int, int] = defaultdict(int)

    def found(self) -> list[Promotion]:
        """All promotions that change the dtype of an activation."""
        for op in self.step.ops(Phase.FORWARD):
            self._follow(op)
        for number in {saved.ref.storage for saved in self.step.saved}:
            if number in self.tainted:
                self.kept[self.tainted[number]] += self.step.storages[number].bytes
        return [
            Promotion(
                op=op.func or op.name,
                by=by,
                constant=constant,
                inside=bool(op.cls),
                shape=op.outputs[0].shape,
                bytes=op.outputs[0].bytes,
                behind=self.behind[index],
                kept=self.kept[index],
                location=Location(op.location.file, op.location.line, module=op.module or None, op=op.func or op.name),
            )
            for index, (op, _, by, constant) in enumerate(self.first)
        ]

    def _follow(self, op: Op) -> None:
        if not op.outputs or op.name in _NOISE:
            return
        if op.factory or all(self._constant(ref.storage) for ref in op.inputs):
            if op.cls or not op.factory:
                self.constants.update(dict.fromkeys(op.made, _FROM_NOTHING))
            return
        result = op.outputs[0]
        floats = [ref for ref in op.inputs if width(ref.dtype) and ref.shape]
        if result.dtype != "float32" or not op.made or is_cast(op) or not floats:
            return
        wide = [ref for ref in floats if ref.dtype == "float32"]
        sources = {self.tainted[ref.storage] for ref in wide if ref.storage in self.tainted}
        if any(is_half(ref.dtype) for ref in floats) and op.name not in _MOVES and op.low:
            self._promoted(op, wide, sources)
        elif sources and all(ref.storage in self.tainted or self._constant(ref.storage) for ref in wide):
            self._spread(op, min(sources))

    def _promoted(self, op: Op, wide: list[Ref], sources: set[int]) -> None:
        culprits = wide
        if sources and all(ref.storage in self.tainted for ref in culprits):
            self._spread(op, min(sources))
            return
        name = op_of(op.func) or op_of(op.name)
        if not culprits or (name is not None and self.policy.explain(name).rule is not CastRule.KEEP):
            return
        fresh = [ref for ref in culprits if ref.storage not in self.tainted]
        by = fresh[0]
        self.first.append((op, by.storage, self._name(by.storage), all(self._constant(r.storage) for r in fresh)))
        self._spread(op, len(self.first) - 1)

    def _spread(self, op: Op, index: int) -> None:
        self.behind[index] += op.outputs[0].bytes
        for number in op.made:
            self.tainted[number] = index

    def _constant(self, number: int) -> bool:
        return number in self.owners or number in self.constants

    def _name(self, number: int) -> str:
        owner = self.owners.get(number)
        if owner is None:
            return f"a float32 tensor {self.constants.get(number, 'of the data')}"
        return f"the float32 {'buffer' if owner.kind is Kind.BUFFER else 'parameter'} {owner.name!r}"
