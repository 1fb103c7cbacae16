"""The backward of an autograd function runs outside autocast: it meets 16-bit gradients and the float32 it saved."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import LOW, Event, Hit, Tensor, Trace, held, spoken
from mixprec.records import Finding, Severity

PRODUCTS = ("addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "linear", "matmul", "mm", "mv")


class CustomFunctionWithoutCustomFwd(Rule):
    """A `torch.autograd.Function` with a matrix product, applied inside autocast, without custom_fwd and custom_bwd."""

    code = "MP082"
    name = "custom-function-without-custom-fwd"
    severity = Severity.ERROR
    title = "The backward of an autograd function multiplies a 16-bit gradient with a float32 tensor that it saved."
    why = (
        "Autocast casts inside forward, but what save_for_backward keeps is the float32 original, and backward runs "
        "outside autocast: the product raises a dtype mismatch. custom_fwd and custom_bwd exist for this."
    )
    bad = """\
import torch


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


weight = torch.ones(4, 4, requires_grad=True)
with torch.autocast("cuda", dtype=torch.float16):
    y = Product.apply(torch.ones(2, 4), weight)
"""
    good = """\
import torch


class Product(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


weight = torch.ones(4, 4, requires_grad=True)
with torch.autocast("cuda", dtype=torch.float16):
    y = Product.apply(torch.ones(2, 4), weight)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#autocast-and-custom-autograd-functions",
        "https://github.com/pytorch/pytorch/issues/132388",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per backward."""
        seen: set[ast.AST | None] = set()
        for hit in held(view, _products):
            if (function := view.function(hit.node)) in seen:
                continue
            seen.add(function)
            advice = "Decorate forward with torch.amp.custom_fwd and backward with torch.amp.custom_bwd."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _products(trace: Trace) -> Iterator[Hit]:
    for event in trace.of(*PRODUCTS):
        mixed = mixed_operands(event) if event.backward else None
        if mixed is not None:
            yield Hit(event.node, f"Backward multiplies {spoken(mixed[0])} with float32, which raises.")


WIDE = frozenset({"float32", "float64", "int32", "int64"})


def mixed_operands(event: Event) -> tuple[Tensor, Tensor] | None:
    """(a 16-bit operand, one that surely has another dtype) of an op that takes only one."""
    tensors = [value for value in event.args if isinstance(value, Tensor) and value.dtypes is not None]
    low = next((tensor for tensor in tensors if tensor.dtypes is not None and tensor.dtypes <= LOW), None)
    wide = next((tensor for tensor in tensors if tensor.dtypes and tensor.dtypes <= WIDE), None)
    return None if low is None or wide is None else (low, wide)
