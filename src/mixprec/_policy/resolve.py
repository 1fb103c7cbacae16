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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mixprec._policy.rule import CastRule
from mixprec._policy.selector import Place

if TYPE_CHECKING:
    from mixprec._policy.policy import Policy

__all__ = ["Decision", "Level", "resolve", "resolve_at"]


class Level(str, enum.Enum):
    """What kind of rule decided, closest first."""

    OP_IN_MODULE = "op in module"
    MODULE = "module"
    OP = "op"
    BASE = "base"
    DEFAULT = "default"


@dataclass(frozen=True)
class Decision:
    """What happens to `op` and why. `source` is a link or the line of the policy that decided.

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

    The enclosing modules are taken from the path, without their classes; where classes of enclosing modules matter,
    use `resolve_at`. Cost: none on the device; pure Python, meant to be memoised per op and module.
    """
    raise NotImplementedError


def resolve_at(policy: Policy, op: str, places: Sequence[Place]) -> Decision:
    """The decision for `op` inside `places`: the modules being called, outermost first, with paths and classes."""
    raise NotImplementedError
