"""Gradients summed over the ranks in float16 overflow, unless they are divided first."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Tag, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity


class ReduceInFp16(Rule):
    """A communication hook that sums `bucket.buffer().half()` and divides afterwards."""

    code = "MP093"
    name = "reduce-in-fp16"
    severity = Severity.ERROR
    title = "Gradients are summed over the ranks in float16 before they are divided by the number of ranks."
    why = "The sum over many ranks, times the loss scale, exceeds 65504. PyTorch's fp16_compress_hook divides first."
    bad = """\
import torch
import torch.distributed as dist


def compress(state, bucket: dist.GradBucket):
    half = bucket.buffer().to(torch.float16)
    dist.all_reduce(half)
    return half / dist.get_world_size()
"""
    good = """\
import torch
import torch.distributed as dist


def compress(state, bucket: dist.GradBucket):
    half = bucket.buffer().div(dist.get_world_size()).to(torch.float16)
    dist.all_reduce(half)
    return half
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per reduction."""
        for hit in held(view, _reductions):
            advice = "Divide by the world size before the conversion, or reduce in float32 or bfloat16."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _reductions(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("all_reduce", "reduce", "reduce_scatter"):
        tensor = event.tensor()
        if (
            isinstance(tensor, Tensor)
            and tensor.half
            and Tag.GRADIENT in tensor.tags
            and Tag.DIVIDED not in tensor.tags
        ):
            yield Hit(event.node, f"These gradients are {spoken(tensor)} and summed before they are divided.")
