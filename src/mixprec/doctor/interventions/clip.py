"""Before every optimizer step the gradients' global 2-norm, unscaled, is clipped."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

__all__ = ["apply"]


def apply(value: float) -> None:
    """`value`: the largest norm. A fused optimizer is handed scaled gradients; the limit is then scaled as well."""

    @torch.no_grad()
    def clip(optimizer: Any, args: Any, kwargs: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return
        scale = getattr(optimizer, "grad_scale", None)
        limit = value if scale is None else value * scale
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))
        factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))

    register_optimizer_step_pre_hook(clip)
