"""With FSDP1 every rank sees only its shard of the gradients: whether one overflowed must be agreed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

FSDP = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
SHARDED = "ShardedGradScaler"


class FoundInfNotShared(Rule):
    """`FullyShardedDataParallel(model)`, stepped through a plain `torch.amp.GradScaler`."""

    code = "MP026"
    name = "found-inf-not-shared"
    severity = Severity.ERROR
    title = "A model sharded by FSDP1 is trained with the plain GradScaler."
    why = (
        "Each rank sees the gradients of its own shard. The plain GradScaler does not share what it found, so one rank "
        "skips the step and halves its scale while the others go on."
    )
    bad = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(net):
    model = FSDP(net)
    scaler = torch.amp.GradScaler("cuda")
    return model, scaler
"""
    good = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


def build(net):
    model = FSDP(net)
    scaler = ShardedGradScaler()
    return model, scaler
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/sharded_grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/fsdp.html",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per scaler of a file that wraps a model and never uses the sharded one."""
        if _is_sharded(view) or not any(True for _ in view.calls(*FSDP)):
            return
        for call in view.calls(*SCALERS - {name for name in SCALERS if name.endswith(SHARDED)}):
            if view.constant(view.argument(call, None, "enabled")) is False or _is_choice(view, call):
                continue
            message = "FSDP1 shards the gradients, and this scaler does not agree with the other ranks on overflow."
            advice = "Use torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler."
            yield self.finding(view, call, message, fix=self.fix(advice))


def _is_sharded(view: FileView) -> bool:
    """Whether a sharded scaler is named anywhere but in an import."""
    names = [node.id for node in view.nodes(ast.Name)] + [node.attr for node in view.nodes(ast.Attribute)]
    return any(SHARDED in (view.imports.get(name) or name) for name in names)


def _is_choice(view: FileView, call: ast.Call) -> bool:
    """Whether the scaler is made only where something is decided at run time: FSDP may be the other way."""
    return any(isinstance(ancestor, (ast.If, ast.IfExp)) for ancestor in view.ancestors(call))
