"""A region always enters PyTorch's own autocast state, because that is what the rest of the ecosystem looks at."""

from __future__ import annotations

import torch

__all__ = ["autocast"]


class autocast(torch.autocast):  # noqa: N801 - a drop-in keeps the name that it replaces
    """`torch.autocast` with an optional policy: same arguments, errors, warnings and uses.

    **Cost** with `policy=None`: that of `torch.autocast`; nothing is intercepted.
    """

    def __init__(
        self,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        *,
        policy: object | None = None,
    ) -> None:
        super().__init__(device_type, dtype, enabled, cache_enabled)
        self.policy = policy
