"""FLOPs of whole steps: PyTorch's counter agrees where it counts, and hand counts agree everywhere."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode


def total(step):
    return sum(op.flops for op in step.ops())


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
@pytest.mark.parametrize("mode", ["fp32", "bf16-mixed"])
def test_flops_agree_with_torch(watched, tasks, step_of, name, mode):
    """Forward and backward together have the FLOPs that torch.utils.flop_counter counts, in any precision."""
    step = step_of(tasks[name](), mode)
    step()
    with FlopCounterMode(display=False) as counter:
        step()

    assert total(watched(name, mode)) == counter.get_total_flops()


def test_mlp_by_hand(watched):
    """Two linear layers: each product three times, but for the gradient of the data, which nobody wants."""
    first, second = 2 * 256 * 64 * 512, 2 * 256 * 512 * 10

    assert total(watched("mlp", "fp32")) == 2 * first + 3 * second


def test_conv_by_hand(watched):
    """Convolutions cost two FLOPs per tap, input channel, output channel and place."""
    first = 2 * 16 * 32 * 32 * 27 * 32
    second = 2 * 16 * 16 * 16 * 32 * 9 * 64
    head = 2 * 16 * 64 * 10

    assert total(watched("conv", "fp32")) == 2 * first + 3 * second + 3 * head


def test_transformer_by_hand(watched):
    """Per block 12 width² weights and two products of scores; the embedding costs none."""
    tokens, width, length, batch, heads = 240, 64, 60, 4, 4
    weights = 2 * tokens * 12 * width * width
    scores = 2 * 2 * batch * heads * length * length * (width // heads)
    head = 2 * tokens * width * 304

    assert total(watched("transformer", "fp32")) == 3 * (2 * (weights + scores) + head)


def test_lstm_by_hand(watched):
    """Each of 20 steps multiplies four gates with input and state; PyTorch's counter does not count the fused layer."""
    steps, gates = 8 * 20, 4 * 64
    layers = 2 * steps * gates * (32 + 64) + 2 * steps * gates * (64 + 64)
    head = 2 * 8 * 64 * 5

    assert total(watched("lstm", "fp32")) == 3 * (layers + head)


def test_inference_mode_is_counted(tasks):
    """Ops that arrive whole in inference mode are taken apart, so a linear layer counts there too."""
    from mixprec.audit import audit

    task = tasks["mlp"]()
    data = torch.randn(256, 64)

    def forward():
        with torch.inference_mode():
            task.model(data)

    report = audit(task.model, forward, warmup=0, timed=0)

    assert report.products.flops == 2 * 256 * 64 * 512 + 2 * 256 * 512 * 10
    assert not report.trains
