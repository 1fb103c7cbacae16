"""Gradients that are reduced over many ranks in bfloat16 lose digits with every addition."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Trace, held, spoken
from mixprec.records import Finding, Severity

POLICIES = {
    "torch.distributed.fsdp.MixedPrecision": 1,
    "torch.distributed.fsdp.MixedPrecisionPolicy": 1,
    "torch.distributed.fsdp.fully_sharded_data_parallel.MixedPrecision": 1,
}
"""FSDP's policies, and where `reduce_dtype` stands in them."""
HOOK = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook"


class AccumulationInBf16(Rule):
    """`MixedPrecision(reduce_dtype=torch.bfloat16)`, `bf16_compress_hook`."""

    code = "MP066"
    name = "accumulation-in-bf16"
    severity = Severity.INFO
    title = "Gradients are reduced over the ranks in bfloat16."
    why = "A bfloat16 sum keeps 8 bits, so the error grows with the number of ranks and micro-batches."
    bad = """\
import torch
from torch.distributed.fsdp import MixedPrecision

policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
"""
    good = """\
import torch
from torch.distributed.fsdp import MixedPrecision

policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/106395",
        "https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.MixedPrecision",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per policy or hook, and per sum of gradients that a script keeps itself."""
        for hit in held(view, _sums):
            fix = self.fix("Keep the sum in float32 and add p.grad.float().")
            yield self.finding(view, hit.node, hit.message, fix=fix, severity=Severity.WARNING)
        for call in view.calls(*POLICIES):
            node = view.argument(call, POLICIES[view.dotted(call.func) or ""], "reduce_dtype")
            if node is not None and view.dtype(node) == "bfloat16":
                yield self.finding(
                    view, node, self.title, fix=self.fix("Reduce in float32: reduce_dtype=torch.float32.")
                )
        for call in view.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "register_comm_hook":
                for arg in call.args:
                    if view.dotted(arg) == HOOK:
                        yield self.finding(
                            view, arg, self.title, fix=self.fix("Leave the hook out, or compress to fp16.")
                        )


def _sums(trace: Trace) -> Iterator[Hit]:
    """Gradients that are added in place to a tensor of 16 bits that is no gradient itself."""
    for event in trace.of("add"):
        total, added = event.tensor(), event.tensor(1)
        if total is None or added is None or not event.inplace:
            continue
        if total.low and Tag.GRADIENT in added.tags and Tag.GRADIENT not in total.tags:
            yield Hit(event.node, f"Gradients are summed in {spoken(total)}.")
