"""The loss scaler: `mixprec.GradScaler`, a drop-in for `torch.amp.GradScaler`, right where that is silent."""

from __future__ import annotations

from mixprec._scaler._grad_scaler import GradScaler

__all__ = ["GradScaler"]
