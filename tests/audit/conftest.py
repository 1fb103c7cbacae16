"""Four small architectures, and a step of each in any precision under watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mixprec
from mixprec._taps import listen
from mixprec.audit._log import Step
from mixprec.audit._record import Recording
from mixprec.audit._steps import cut


class Task(NamedTuple):
    """A model, what makes a batch for it, and its loss."""

    model: nn.Module
    batch: Callable[[], Any]
    loss: Callable[[nn.Module, Any], Tensor]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int = 304, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.embedding(ids)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0].mean(1))


def classify(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def mlp() -> Task:
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))
    return Task(model, lambda: (torch.randn(256, 64), torch.randint(0, 10, (256,))), classify)


def conv() -> Task:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return Task(model, lambda: (torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))), classify)


def transformer() -> Task:
    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    return Task(Transformer(), lambda: torch.randint(0, 304, (4, 60)), loss)


def lstm() -> Task:
    return Task(Recurrent(), lambda: (torch.randn(8, 20, 32), torch.randint(0, 5, (8,))), classify)


class Cells(nn.Module):
    """An LSTM by its cell: oneDNN's own has no float16 on every CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(32, 64)
        self.head = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for now in x.unbind(1):
            state = self.cell(now, state)
        return self.head(state[0])


def cells() -> Task:
    return Task(Cells(), lambda: (torch.randn(8, 6, 32), torch.randint(0, 5, (8,))), classify)


def wide() -> Task:
    """Few activations beside many weights, so that the peak is in the optimizer."""
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return Task(model, lambda: (torch.randn(4, 64), torch.randint(0, 10, (4,))), classify)


TASKS = {make.__name__: make for make in (mlp, conv, transformer, lstm, cells, wide)}


class BlockwiseAdam(torch.optim.Optimizer):
    """Adam whose moments are bytes, with a float32 scale per 256 of them; float32 below 4,096 elements.

    What bitsandbytes and torchao store, without their tables: each moment is linear in its byte.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for weight in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[weight]
            moments = []
            for name, signed, rate, value in (("m", True, 0.1, weight.grad), ("v", False, 0.001, weight.grad**2)):
                old = _read(state[name], signed) if name in state else torch.zeros_like(value)
                moments.append(old.lerp_(value, rate))
                state[name] = _written(old, signed) if weight.numel() >= 4096 else old
            weight.addcdiv_(moments[0], moments[1].sqrt_().add_(1e-8), value=-1e-3)


def _written(value: Tensor, signed: bool) -> Any:
    blocks = value.reshape(-1, 256)
    scale = blocks.abs().amax(1).clamp_(min=1e-20)
    codes = (blocks / scale[:, None] * (127 if signed else 255)).round_().to(torch.int8 if signed else torch.uint8)
    return {"codes": codes, "scale": scale, "shape": value.shape}


def _read(state: Any, signed: bool) -> Tensor:
    if isinstance(state, Tensor):
        return state
    value = state["codes"].float().mul_(state["scale"][:, None] / (127 if signed else 255))
    return value.reshape(state["shape"])


EIGHT_BIT = "bf16-mixed + 8-bit optimizer"


def stepper(
    task: Task, mode: str, optimizer_of: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None
) -> Callable[[], None]:
    """One training step of `task` in a mode of `mixprec.Precision`, or under a `LowBit` or an 8-bit optimizer."""
    make = optimizer_of or (BlockwiseAdam if mode == EIGHT_BIT else torch.optim.AdamW)
    wrapped = {"bf16 + Kahan summation": mixprec.KahanSum, "bf16 + stochastic rounding": mixprec.StochasticRounding}
    if mode in wrapped:
        lowered = task.model.bfloat16()
        optimizer = wrapped[mode](torch.optim.AdamW(lowered.parameters()))

        def lowbit_step() -> None:
            batch = task.batch()
            with torch.autocast("cpu", torch.bfloat16):
                loss = task.loss(task.model, batch)
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()

        return lowbit_step
    precision = mixprec.Precision(mode.split(" ")[0], make(task.model.parameters()), model=task.model)

    def step() -> None:
        batch = task.batch()
        with precision.autocast():
            loss = task.loss(task.model, batch)
        precision.backward(loss)
        del loss
        precision.step()

    return step


def recorded(step: Callable[[], None], model: nn.Module) -> Step:
    """The last of two watched steps, after one that made the optimizer's state."""
    step()
    recording = Recording()
    with listen(recording):
        recording.watch.start(model)
        for _ in range(2):
            step()
        recording.watch.stop()
    assert recording.problems == []
    return cut(recording.watch.events, recording.watch.storages)[-1]


@pytest.fixture(scope="session")
def watched() -> Callable[[str, str], Step]:
    """`watched(task, mode)`: the recorded step, each made once."""
    known: dict[tuple[str, str], Step] = {}

    def get(name: str, mode: str) -> Step:
        if (name, mode) not in known:
            torch.manual_seed(0)
            task = TASKS[name]()
            known[name, mode] = recorded(stepper(task, mode), task.model)
        return known[name, mode]

    return get


@pytest.fixture(scope="session")
def tasks() -> dict[str, Callable[[], Task]]:
    return dict(TASKS)


@pytest.fixture(scope="session")
def step_of() -> Callable[..., Callable[[], None]]:
    return stepper


@pytest.fixture(scope="session")
def record() -> Callable[[Callable[[], None], nn.Module], Step]:
    return recorded
