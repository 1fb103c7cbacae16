"""mixprec: mixed-precision training in PyTorch that explains itself.

Names resolve at first use, so `import mixprec` and `import mixprec.lint` do not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mixprec._version import __version__

if TYPE_CHECKING:
    from mixprec import presets
    from mixprec._autocast import autocast
    from mixprec._convert import Converted, convert
    from mixprec._headroom import HeadroomRules
    from mixprec._kernels import Kernels
    from mixprec._lowbit import KahanSum, StochasticRounding
    from mixprec._patch import Patch, patch
    from mixprec._policy import Policy
    from mixprec._precision import Precision
    from mixprec._scaler import GradScaler, Guard, ShardedGradScaler
    from mixprec._schedule import SkipAwareScheduler, warmup
    from mixprec.audit import audit
    from mixprec.monitor import Monitor
    from mixprec.records import StepReport

_HOME = {
    "Converted": "mixprec._convert",
    "GradScaler": "mixprec._scaler",
    "Guard": "mixprec._scaler",
    "HeadroomRules": "mixprec._headroom",
    "KahanSum": "mixprec._lowbit",
    "Kernels": "mixprec._kernels",
    "Monitor": "mixprec.monitor",
    "Patch": "mixprec._patch",
    "Policy": "mixprec._policy",
    "Precision": "mixprec._precision",
    "ShardedGradScaler": "mixprec._scaler",
    "SkipAwareScheduler": "mixprec._schedule",
    "StepReport": "mixprec.records",
    "StochasticRounding": "mixprec._lowbit",
    "autocast": "mixprec._autocast",
    "convert": "mixprec._convert",
    "patch": "mixprec._patch",
    "warmup": "mixprec._schedule",
}

__all__ = [
    "Converted",
    "GradScaler",
    "Guard",
    "HeadroomRules",
    "KahanSum",
    "Kernels",
    "Monitor",
    "Patch",
    "Policy",
    "Precision",
    "ShardedGradScaler",
    "SkipAwareScheduler",
    "StepReport",
    "StochasticRounding",
    "__version__",
    "audit",
    "autocast",
    "convert",
    "patch",
    "presets",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name in ("audit", "presets"):  # mixprec.audit is a package that can be called
        return importlib.import_module(f"mixprec.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'mixprec' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
