"""The 8-bit row beside the optimizers that it stands for, whose state is made of wrapper tensors or of plain bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec._policy import Policy
from mixprec.audit._log import Kind
from mixprec.audit._memory import memory_of
from mixprec.audit._simulate import each_precision, simulate

EIGHT_BIT = "bf16-mixed + 8-bit optimizer"


class Bytes(torch.Tensor):
    """A wrapper that looks like a float32 tensor and holds a byte per element and a scale per 256."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        wide = [
            a.codes.float().view(-1, 256).mul(a.scale[:, None]).view(a.shape) if isinstance(a, cls) else a for a in args
        ]
        if func is torch.ops.aten.copy_.default and isinstance(args[0], cls):
            blocks = wide[1].view(-1, 256)
            args[0].scale.copy_(blocks.abs().amax(1) / 127)
            args[0].codes.copy_((blocks / args[0].scale[:, None]).view(args[0].shape))
            return args[0]
        return func(*wide, **(kwargs or {}))


class Momentum(torch.optim.Optimizer):
    """SGD whose momentum is a wrapper tensor."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for weight in (p for group in self.param_groups for p in group["params"]):
            state = self.state[weight]
            if not state:
                state["momentum"] = Bytes(torch.ones_like(weight, dtype=torch.int8), torch.ones(weight.numel() // 256))
            state["momentum"].copy_(state["momentum"].float().add(weight.grad))
            weight.add_(state["momentum"] * -0.1)


def test_a_wrapper_counts_as_what_it_is_made_of(record):
    """Bytes and scales are state; the float32 tensor that the wrapper looks like is nowhere."""
    model = nn.Linear(256, 64, bias=False)
    optimizer = Momentum(model.parameters())

    def step():
        model(torch.ones(2, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    recorded = record(step, model)
    elements = 256 * 64
    memory = memory_of(recorded)

    assert memory.total(Kind.STATE) == elements + 4 * elements // 256
    assert memory.after_forward < 4 * elements + elements + 4 * elements // 256 + 5000  # weights, state, a small batch


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", ["bitsandbytes", "torchao"])
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_the_row_is_what_the_libraries_take(package, name, tasks, step_of, record, watched):
    """State to the byte, with the tables of codes that each keeps beside it; after forward and the peak within 5 %."""
    pytest.importorskip(package, reason="extra: quantized")
    library = pytest.importorskip(f"{package}.optim", reason="extra: quantized")
    task = tasks[name]()
    with torch.compiler.set_stance("force_eager"):  # torchao compiles its step
        run = record(step_of(task, EIGHT_BIT, library.AdamW8bit), task.model)
    (row,) = [p for p in each_precision() if p.name == EIGHT_BIT]

    forecast, measured = simulate(watched(name, "fp32"), row, Policy.torch("cpu")), memory_of(run)
    large = 2 * sum(p.numel() >= 4096 for p in task.model.parameters())
    tables = 2048 if package == "bitsandbytes" else 1024 * large
    small = 4 * sum(1 for _ in task.model.parameters())  # step counters, which only some keep as tensors

    assert measured.total(Kind.STATE) - tables == pytest.approx(forecast.state, abs=2 * small)
    assert forecast.after_forward == pytest.approx(measured.after_forward, rel=0.05)
    assert forecast.peak == pytest.approx(measured.peak, rel=0.05)
