"""The precision report tells what autocast did, with the rule behind it."""

from __future__ import annotations

import torch
from torch import nn

from mixprec._policy import Policy
from mixprec.audit import audit
from mixprec.audit._ops import op_rows
from mixprec.audit._products import Why, products_of


def rows_of(step, op, phase="forward"):
    return [row for row in op_rows(step, Policy.torch("cpu")) if row.op == op and row.phase == phase]


def test_linear_layers_are_cast_down_and_say_why(watched):
    """Weight, bias and data are cast; the rule is the policy's own."""
    first = rows_of(watched("mlp", "bf16-mixed"), "linear")[0]

    assert (first.into, first.out, first.rule) == (("bfloat16",), ("bfloat16",), "low")
    assert first.casts == 3
    assert first.reason == Policy.torch("cpu").explain("linear").reason
    assert first.module == "0"


def test_the_loss_runs_in_float32(watched):
    """cross_entropy is on the CPU's float32 list."""
    (loss,) = rows_of(watched("mlp", "bf16-mixed"), "cross_entropy")[:1]

    assert loss.out == ("float32",)
    assert loss.rule == "fp32"


def test_outside_a_region_there_is_no_rule(watched):
    """The same step without a region."""
    row = rows_of(watched("mlp", "fp32"), "linear")[0]

    assert (row.into, row.rule, row.casts) == (("float32",), "", 0)


def test_backward_is_placed_with_its_forward(watched):
    """The gradients of a layer's products stand at the layer."""
    backward = rows_of(watched("mlp", "bf16-mixed"), "linear", "backward")

    assert {row.module for row in backward} == {"0", "3"}


def layers(model, step):
    return {row.op: row for row in audit(model, step, warmup=0, timed=0).products.layers}


def test_every_product_that_is_not_16_bit_has_a_reason():
    """Outside the region; an in-place form; float64."""
    model = nn.Linear(64, 64)
    out = torch.zeros(16, 64)
    wide = torch.randn(16, 64, dtype=torch.float64)
    narrow = torch.randn(16, 64)

    def step():
        with torch.no_grad():
            torch.mm(narrow, narrow.t())
            with torch.autocast("cpu", torch.bfloat16):
                model(narrow)
                out.addmm_(narrow, torch.eye(64))
                torch.matmul(wide, wide.t())

    seen = layers(model, step)

    assert seen["linear"].why_not == ""
    assert seen["mm"].why_not == Why.OUTSIDE
    assert seen["addmm_"].why_not == Why.IN_PLACE
    assert seen["matmul"].why_not == Why.FLOAT64


def test_shares_add_up(watched):
    """The layers' shares of the FLOPs are the whole, and all are 16-bit under a region."""
    products = products_of(watched("transformer", "bf16-mixed"), Policy.torch("cpu"))

    assert abs(sum(row.share for row in products.layers) - 1) < 1e-9
    assert products.low_share == 1.0
