"""What a name stands for is decided by the imports and plain assignments that bind it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

__all__ = ["AUTOCASTS", "SCALERS", "bindings"]

_AMP = ("GradScaler", "autocast", "custom_bwd", "custom_fwd")
STARS: dict[str, tuple[str, ...]] = {
    "torch": ("autocast", "bfloat16", "finfo", "float16", "float32", "half", "no_grad"),
    "torch.amp": _AMP,
    "torch.cuda.amp": _AMP,
    "torch.nn.utils": ("clip_grad_norm_", "clip_grad_value_"),
    "torch.optim": ("SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "RMSprop"),
}
"""What `from X import *` brings that a rule may ask for."""

AUTOCASTS = frozenset(
    {
        "mixprec.autocast",
        "torch.amp.autocast",
        "torch.amp.autocast_mode.autocast",
        "torch.autocast",
        "torch.cpu.amp.autocast",
        "torch.cpu.amp.autocast_mode.autocast",
        "torch.cuda.amp.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
        "torch.xpu.amp.autocast",
    }
)
"""Every name under which an autocast region is made."""

SCALERS = frozenset(
    {
        "mixprec.GradScaler",
        "torch.GradScaler",
        "torch.amp.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
        "torch.cpu.amp.GradScaler",
        "torch.cpu.amp.grad_scaler.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
    }
)
"""Every name under which a gradient scaler is made."""


def bindings(nodes: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Local name -> dotted name, for every import at whatever depth; the first of several alternatives stands.

    Relative imports keep their dots: `from .utils import clip` binds `clip` to `.utils.clip`.
    """
    bound: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                bound.setdefault(name, alias.name if alias.asname else name)
            continue
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                for name in STARS.get(module, ()):
                    bound.setdefault(name, f"{module}.{name}")
            else:
                joint = "" if module.endswith(".") or not module else "."
                bound.setdefault(alias.asname or alias.name, f"{module}{joint}{alias.name}")
    return bound
