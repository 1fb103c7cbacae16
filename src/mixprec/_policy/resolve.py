"""The closest rule decides; how close is exact, so the same question always has one answer.

Rules compare by, in this order:
1. what they speak of: an op inside a module, then a whole module, then an op, then the base list, then `KEEP`;
2. how deep the module that they name lies on the way to the op: the innermost wins (`encoder.layers.3` over `encoder`);
3. how closely they name that module: a path over a class; a path with more literal segments, then characters; the
   nearer base class, then the longer class name;
4. order: the later one.

A whole-module rule is a promise about everything inside it:
- `FP32` runs every op inside in float32, as `torch.autocast(enabled=False)` with inputs cast up does;
- `LOW` casts the eligible inputs of every op inside to the region's dtype;
- `KEEP` leaves every op inside to its inputs' dtypes, as `torch.autocast(enabled=False)` does.

A ban yields to a whole-module `FP32` or `KEEP` (the place is out of mixed precision), not to `LOW`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mixprec._policy.base import table
from mixprec._policy.entry import Rule
from mixprec._policy.names import known_op
from mixprec._policy.rule import CastRule
from mixprec._policy.selector import Place, class_names
from mixprec._policy.text import line_of

if TYPE_CHECKING:
    from mixprec._policy.policy import Policy

__all__ = ["Decision", "Level", "module_rule", "resolve", "resolve_at"]


class Level(str, enum.Enum):
    """What kind of rule decided, closest first."""

    OP_IN_MODULE = "op in module"
    MODULE = "module"
    OP = "op"
    BASE = "base"
    DEFAULT = "default"


@dataclass(frozen=True)
class Decision:
    """What happens to `op` and why. `source` is a link, or the line of the policy that decided.

    `replacement` says what to write instead of a banned op; empty for every other rule.
    """

    op: str
    rule: CastRule
    reason: str
    source: str
    level: Level = Level.DEFAULT
    replacement: str = ""


def resolve(
    policy: Policy,
    op: str,
    module_path: str | None = None,
    module_classes: type | str | Iterable[type | str] = (),
) -> Decision:
    """The decision for `op` (any spelling) inside the module at `module_path` of class `module_classes`.

    `module_path` None is outside any module, `""` the root. The enclosing modules are taken from the path, without
    their classes; where those matter, use `resolve_at`. Raises `UnknownNameError`.

    Cost: none on the device; pure Python in the number of rules, meant to be memoised per op and module.
    """
    places = () if module_path is None else (Place(module_path, class_names(module_classes)),)
    return resolve_at(policy, op, places)


def resolve_at(policy: Policy, op: str, places: Sequence[Place]) -> Decision:
    """The decision for `op` inside `places`: the modules being called, outermost first, with paths and classes.

    Modules that are named in a path but never called themselves (a `ModuleList`) count as enclosing.
    """
    name = known_op(op)
    own = _own(policy, name)
    here = max(_matches(policy.rules, name, _enclosing(places)), default=None, key=lambda match: match[0])
    if here is None:
        return own
    rule = here[1]
    if rule.op is None and rule.rule is CastRule.LOW and own.rule is CastRule.BANNED:
        return own
    return _decided_by(rule, name, Level.MODULE if rule.op is None else Level.OP_IN_MODULE)


def module_rule(policy: Policy, places: Sequence[Place]) -> CastRule | None:
    """The whole-module rule in force inside `places`, outermost first; None where none is."""
    whole = [rule for rule in policy.rules if rule.op is None]
    here = max(_matches(whole, "", _enclosing(places)), default=None, key=lambda match: match[0])
    return None if here is None else here[1].rule


def _own(policy: Policy, op: str) -> Decision:
    """The decision for `op` outside any module rule."""
    for rule in reversed(policy.rules):
        if rule.op == op and rule.where is None:
            return _decided_by(rule, op, Level.OP)
    group = table(policy.base).get(op)
    if group is not None:
        return Decision(op, group.rule, group.reason, group.source, Level.BASE, group.replacement)
    reason = f"on no list of {policy.base}, so it runs in the dtype of its inputs"
    return Decision(op, CastRule.KEEP, reason, f"base {policy.base}")


def _decided_by(rule: Rule, op: str, level: Level) -> Decision:
    line = line_of(rule)
    reason = rule.reason or f"this policy's rule for {_spoken_of(rule)}"
    replacement = "an op that the policy allows" if rule.rule is CastRule.BANNED else ""
    return Decision(op, rule.rule, reason, line, level, replacement)


def _spoken_of(rule: Rule) -> str:
    place = f"everything inside {rule.where}" if rule.op is None else rule.op
    return place if rule.op is None or rule.where is None else f"{rule.op} inside {rule.where}"


def _matches(
    rules: Iterable[Rule], op: str, places: Sequence[Place]
) -> Iterator[tuple[tuple[bool, int, tuple[int, int, int], int], Rule]]:
    """The rules about modules that hold for `op` inside `places`, each with how close it is."""
    for order, rule in enumerate(rules):
        if rule.where is None or rule.op not in (None, op):
            continue
        for depth in reversed(range(len(places))):
            closeness = rule.where.closeness(places[depth])
            if closeness is not None:
                yield (rule.op is not None, depth, closeness, order), rule
                break


def _enclosing(places: Sequence[Place]) -> list[Place]:
    """`places` with every module in between that only their paths name, and the root."""
    found: list[Place] = []
    for place in places:
        met = {p.path for p in found}
        parents = place.path.split(".") if place.path else []
        above = ["", *(".".join(parents[:i]) for i in range(1, len(parents)))] if parents else []
        found.extend(Place(path) for path in above if path not in met)
        found.append(place)
    return found
