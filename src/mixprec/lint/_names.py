"""What a name stands for is decided by the imports and plain assignments that bind it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

__all__ = ["AUTOCASTS", "SCALERS", "alternatives", "bindings"]

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
        for name, dotted in _imported(node):
            bound.setdefault(name, dotted)
    return bound


def alternatives(nodes: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, list[tuple[ast.stmt, str]]]:
    """Local name -> the imports that bind it and to what, for each name that imports bind to different things."""
    bound: dict[str, list[tuple[ast.stmt, str]]] = {}
    for node in nodes:
        for name, dotted in _imported(node):
            bound.setdefault(name, []).append((node, dotted))
    return {name: several for name, several in bound.items() if len({dotted for _, dotted in several}) > 1}


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(local name, dotted name) of everything that one import binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, alias.name if alias.asname else name
        return
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            yield from ((name, f"{module}.{name}") for name in STARS.get(module, ()))
        else:
            joint = "" if module.endswith(".") or not module else "."
            yield alias.asname or alias.name, f"{module}{joint}{alias.name}"
