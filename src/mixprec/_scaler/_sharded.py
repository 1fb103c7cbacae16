"""Code written for FSDP1's `ShardedGradScaler` changes one import: same arguments in the same order, same behaviour."""

from __future__ import annotations

from typing import Any

from mixprec._agreement import WORLD, Grouping
from mixprec._scaler._grad_scaler import GradScaler


class ShardedGradScaler(GradScaler):
    """Takes the place of `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`.

        from mixprec import ShardedGradScaler

    It is `GradScaler` with torch's argument order for this class (`backoff_factor` comes before `growth_factor`), with
    all ranks of `process_group` agreeing on every step (by default the whole world), and with float16 gradients
    unscaled in float16, as FSDP's mixed precision needs. A rank without gradients takes part. Fused optimizers are told
    what all ranks found, which torch's class does not do; one collective serves the flag and the norm.

    Args: torch's, in its order. The keyword arguments beyond them are `GradScaler`'s, which see for what is raised.

    **Cost** of a step: as `GradScaler`'s, and one collective of 16 bytes.
    """

    _keeps_half = True

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Grouping = None,
        **more: Any,
    ) -> None:
        super().__init__(
            device,
            init_scale,
            growth_factor,
            backoff_factor,
            growth_interval,
            enabled,
            process_group=WORLD if process_group is None else process_group,
            **more,
        )
        if self._enabled:
            self.process_group = process_group
