"""What a policy does differently from PyTorch's own list is all that has to be intercepted."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mixprec._policy.base import table
from mixprec._policy.rule import CastRule

if TYPE_CHECKING:
    from mixprec._policy.policy import Policy

__all__ = ["difference"]


def difference(policy: Policy, native: Policy) -> Mapping[str, CastRule]:
    """Op -> the rule of `policy`, for the ops whose rule outside modules differs from that of `native`.

    `native` is `Policy.torch(device, version=torch.__version__)`. Empty where they agree. An op that `native` lists
    and `policy` does not appears as `KEEP`. Where the device has no 16-bit kernel for an op, only a rule that the
    policy itself gives (not its base list) can differ from float32. Module rules are not in it: see
    `policy.module_rules`.
    """
    ours, theirs = policy.ops, native.ops
    chosen = {rule.op for rule in policy.rules if rule.where is None}
    fixed = {op for op, group in table(native.base).items() if group.only} - chosen
    changed = {op: ours.get(op, CastRule.KEEP) for op in sorted(ours.keys() | theirs.keys())}
    return MappingProxyType(
        {op: rule for op, rule in changed.items() if op not in fixed and rule is not theirs.get(op, CastRule.KEEP)}
    )
