"""The loss scaler: `mixprec.GradScaler`, a drop-in for `torch.amp.GradScaler`, right where that is silent."""

from __future__ import annotations

from mixprec._scaler._grad_scaler import GradScaler
from mixprec._scaler._guards import DEFAULT_GUARDS, Guard
from mixprec._scaler._sharded import ShardedGradScaler

__all__ = ["DEFAULT_GUARDS", "GradScaler", "Guard", "ShardedGradScaler"]
