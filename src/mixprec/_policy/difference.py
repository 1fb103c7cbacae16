"""What a policy does differently from PyTorch's own list is all that has to be intercepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mixprec._policy.rule import CastRule

if TYPE_CHECKING:
    from mixprec._policy.policy import Policy

__all__ = ["difference"]


def difference(policy: Policy, native: Policy) -> Mapping[str, CastRule]:
    """Op -> the rule of `policy`, for the ops whose rule outside modules differs from that of `native`.

    `native` is `Policy.torch(device, version=torch.__version__)`. Empty where they agree. An op that `native` lists
    and `policy` does not appears as `KEEP`. Module rules are not in it: see `policy.module_rules`.
    """
    raise NotImplementedError
