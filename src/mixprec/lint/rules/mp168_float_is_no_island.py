"""Autocast casts a matrix product's operands whoever converted them before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Tag, Tensor, Trace, dtype_words, held
from mixprec.records import Finding, Severity

PRODUCTS = ("addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear", "matmul", "mm", "mv")

CONVERSIONS = ("float", "to", "type", "type_as")


class FloatIsNoIsland(Rule):
    """`q.float() @ k.float()` inside autocast."""

    code = "MP168"
    name = "float-is-no-island"
    severity = Severity.WARNING
    title = "A tensor is converted to float32 for a matrix product, inside autocast, which converts it back."
    why = (
        "Matrix products and convolutions run in autocast's dtype whatever their inputs are, so .float() has no effect."
    )
    bad = """\
import torch


def scores(q, k, weight):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        q, k = q @ weight, k @ weight
        return q.float() @ k.float().transpose(-2, -1)
"""
    good = """\
import torch


def scores(q, k, weight):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        q, k = q @ weight, k @ weight
        with torch.autocast("cuda", enabled=False):
            return q.float() @ k.float().transpose(-2, -1)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/huggingface/diffusers/issues/13920",
        "https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float16",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per product."""
        for hit in held(view, _products):
            advice = "Put torch.autocast(device, enabled=False) around it; what it reads needs .float() there."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _products(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*PRODUCTS):
        result = event.result
        if (
            event.region.enabled
            and not event.inplace
            and _is_island(event)
            and isinstance(result, Tensor)
            and result.low
        ):
            words = dtype_words(event.region.dtypes)
            yield Hit(
                event.node, f"Autocast casts these operands back to {words}; .float() before {event.op} has no effect."
            )


def _is_island(event: Event) -> bool:
    """Whether an operand was converted for this product: from 16 bits, or every operand from whatever it was.

    A layer is given what was converted for it only where the conversion stands in its call: a network's output that
    is made float32 and goes into the next network was not meant to keep that one out of autocast.
    """
    tensors = [value for value in event.args if isinstance(value, Tensor)]
    if event.module is not None and not _converts(event.node):
        return False
    if any(Tag.UPCAST in tensor.tags and tensor.only("float32") for tensor in tensors):
        return True
    written = [Tag.WRITTEN_FLOAT in tensor.tags for tensor in tensors]
    return len(written) > 1 and all(written) and event.module is None


def _converts(call: ast.AST) -> bool:
    """Whether an argument of `call` is converted where it is given."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []
    calls = (node for arg in given for node in ast.walk(arg) if isinstance(node, ast.Call))
    return any(isinstance(node.func, ast.Attribute) and node.func.attr in CONVERSIONS for node in calls)
