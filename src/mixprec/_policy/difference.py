"""What a policy does differently from PyTorch's own list is all that has to be intercepted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mixprec._policy.base import table
from mixprec._policy.resolve import Decision, Level, resolve
from mixprec._policy.rule import CastRule

if TYPE_CHECKING:
    from mixprec._policy.policy import Policy

__all__ = ["difference", "differs"]


def difference(policy: Policy, native: Policy) -> Mapping[str, CastRule]:
    """Op -> the rule of `policy`, for the ops whose rule outside modules differs from that of `native`.

    `native` is `Policy.torch(device)`. Empty where they agree. An op that `native` lists and `policy` does not
    appears as `KEEP`. Module rules are not in it: see `policy.module_rules`, and `differs` for what they decide.
    """
    decisions = (resolve(policy, op) for op in sorted(policy.ops.keys() | native.ops.keys()))
    return MappingProxyType({d.op: d.rule for d in decisions if differs(d, native)})


def differs(decision: Decision, native: Policy) -> bool:
    """Whether the list `native` would not by itself do what `decision` says.

    Where the device has no 16-bit kernel for the op, a base list cannot lower it and so does not differ; a rule of
    the policy's own is obeyed.
    """
    group = table(native.base).get(decision.op)
    if group is not None and group.only and decision.level in (Level.BASE, Level.DEFAULT):
        return False
    return decision.rule is not native.ops.get(decision.op, CastRule.KEEP)
