"""FSDP2's policy casts parameters and installs no autocast: the loss runs in the parameters' dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import LOW
from mixprec.records import Finding, Severity

POLICIES = ("torch.distributed.fsdp.MixedPrecisionPolicy", "torch.distributed._composable.fsdp.MixedPrecisionPolicy")
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss", "torch.nn.functional.kl_div")


class Fsdp2WithoutAutocast(Rule):
    """`MixedPrecisionPolicy(param_dtype=torch.bfloat16)`, and a loss of the model's output as it comes."""

    code = "MP092"
    name = "fsdp2-without-autocast"
    severity = Severity.INFO
    title = "A model under FSDP2's MixedPrecisionPolicy gives 16-bit outputs, and the loss is taken of them."
    why = "fully_shard casts parameters and inputs, but enters no autocast, so softmax and loss run in 16 bits."
    bad = """\
import torch
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def step(model, x, y):
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return F.cross_entropy(model(x), y)
"""
    good = """\
import torch
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def step(model, x, y):
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return F.cross_entropy(model(x).float(), y)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",)
    words = ("MixedPrecisionPolicy",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per loss, where no policy gives float32 outputs and no autocast is entered."""
        policies = [call for call in view.calls(*POLICIES) if view.dtype(view.argument(call, 0, "param_dtype")) in LOW]
        if not policies or "autocast" in view.source:
            return
        if any(view.argument(call, 2, "output_dtype") is not None for call in policies):
            return
        for call in view.calls(*LOSSES):
            given = view.argument(call, 0, "input")
            if isinstance(given, ast.Call) and not _converts(given):
                message = "The model's output has 16 bits here, and the loss runs in them."
                yield self.finding(view, call, message, fix=self.fix("Take the loss of the output's .float()."))


def _converts(call: ast.Call) -> bool:
    """Whether a conversion stands anywhere in what the loss is given."""
    return any(isinstance(node, ast.Attribute) and node.attr in ("float", "to") for node in ast.walk(call))
