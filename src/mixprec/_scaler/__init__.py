"""The loss scaler: `mixprec.GradScaler`, a drop-in for `torch.amp.GradScaler` that is right where that one is silent."""

from __future__ import annotations

from mixprec._scaler._grad_scaler import GradScaler

__all__ = ["GradScaler"]
