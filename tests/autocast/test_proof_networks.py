"""Random small networks train alike, bit for bit, under PyTorch's autocast and under its list interpreted in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mixprec import Policy, autocast
from mixprec._autocast import CastCache, interpret

pytestmark = pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # rms_norm's, also natively

WIDTH = 8


class Lambda(nn.Module):
    """A layer that is a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Attention(nn.Module):
    """Three projections of one input, products, softmax and a fused variant."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)
        return F.softmax(q @ k.mT / WIDTH**0.5, -1) @ v


class Tied(nn.Module):
    """One weight read twice, the second time transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(x, self.weight)), self.weight.t())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0].float()
        states = [state := self.cell(step.float(), state.float()) for step in x.unbind(1)]
        return torch.stack(states, 1)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "conv": lambda: nn.Sequential(
        Lambda(lambda x: x.mT), nn.Conv1d(WIDTH, WIDTH, 3, padding=1), Lambda(lambda x: x.mT)
    ),
    "reflect": lambda: nn.Conv1d(4, 4, 3, padding=1, padding_mode="reflect"),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "rms norm": lambda: nn.RMSNorm(WIDTH),
    "group norm": lambda: nn.GroupNorm(2, 4),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "attention": lambda: Attention(fused=False),
    "fused attention": lambda: Attention(fused=True),
    "tied": Tied,
    "recurrent": Recurrent,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "prelu": nn.PReLU,
    "softplus": nn.Softplus,
    "dropout": lambda: nn.Dropout(0.2),
    "square": lambda: Lambda(lambda x: x.square().add(1).rsqrt()),
    "power": lambda: Lambda(lambda x: (x.abs() + 1) ** -0.5),
    "normalize": lambda: Lambda(lambda x: F.normalize(x, dim=-1)),
    "cat": lambda: nn.Sequential(Lambda(lambda x: torch.cat([x, x.float()], -1)), nn.Linear(2 * WIDTH, WIDTH)),
    "einsum": lambda: Lambda(lambda x: torch.einsum("bij,bkj->bik", x, x) @ x),
    "cumsum": lambda: Lambda(lambda x: x.cumsum(1) / 4),
    "max pool": lambda: Lambda(lambda x: F.max_pool1d(x, 3, 1, 1)),
    "interpolate": lambda: Lambda(lambda x: F.interpolate(x, size=WIDTH, mode="linear")),
    "half": lambda: Lambda(lambda x: x.bfloat16()),
    "float": lambda: Lambda(lambda x: x.float()),
}


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(x, x, x)[0]
        return out


LAYERS["torch attention"] = _SelfAttention

LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mse": lambda y: F.mse_loss(y, torch.ones_like(y)),
    "cross entropy": lambda y: F.cross_entropy(y.flatten(0, 1), torch.arange(12) % WIDTH),
    "smoothed": lambda y: F.cross_entropy(y.flatten(0, 1), torch.arange(12) % WIDTH, label_smoothing=0.1),
    "bce": lambda y: F.binary_cross_entropy_with_logits(y, torch.full_like(y, 0.3)),
    "l1": lambda y: F.smooth_l1_loss(y, torch.zeros_like(y)),
    "kl": lambda y: F.kl_div(F.log_softmax(y, -1), torch.full_like(y, 1 / WIDTH), reduction="batchmean"),
    "sum": lambda y: y.float().square().sum() / 100,
}


def _network(layers: list[str], residual: list[bool], seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    built = [LAYERS[name]() for name in layers]
    return nn.Sequential(
        *[Residual(m) if r else m for m, r in zip(built, itertools.cycle(residual), strict=False)],
        nn.Linear(WIDTH, WIDTH),
    )


def _train(network: nn.Sequential, loss: str, region: Callable[[], Any], seed: int) -> list[torch.Tensor]:
    """Losses and gradients of two steps of SGD, the second one with two micro-batches in one region."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    record: list[torch.Tensor] = []
    torch.manual_seed(seed)
    for micro_batches in (1, 2):
        optimizer.zero_grad()
        with region():
            for _ in range(micro_batches):
                value = LOSSES[loss](network(torch.randn(3, 4, WIDTH)))
                value.backward()
                record.append(value.detach().clone())
        record += [p.grad.clone() for p in network.parameters() if p.grad is not None]
        optimizer.step()
    return record


INSIDE_CPP_ON_CPU = {"recurrent"}
"""A cell is linear layers and gates in one C++ op; CPU's autocast casts inside of it, which no mode can see."""


def _networks(layers: set[str]) -> st.SearchStrategy[Any]:
    return st.tuples(
        st.lists(st.sampled_from(sorted(layers)), min_size=1, max_size=5),
        st.lists(st.booleans(), min_size=1, max_size=3),
        st.sampled_from(sorted(LOSSES)),
        st.integers(0, 2**16),
    )


def _assert_equal(network: Any, kinds: list[Callable[[], Any]]) -> None:
    layers, residual, loss, seed = network
    records = [_train(_network(layers, residual, seed), loss, kind, seed) for kind in kinds]
    for other in records[1:]:
        assert len(other) == len(records[0])
        for a, b in zip(records[0], other, strict=True):
            assert a.dtype is b.dtype
            assert torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(network=_networks(set(LAYERS) - INSIDE_CPP_ON_CPU))
def test_a_random_network_trains_bit_for_bit_alike(dtype: torch.dtype, network: Any) -> None:
    """Losses and gradients under the CPU list, interpreted whole in Python, are those of `torch.autocast`."""
    _assert_equal(
        network,
        [lambda: torch.autocast("cpu", dtype), lambda: interpret("cpu", dtype, policy=Policy.torch("cpu"))],
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(network=_networks(set(LAYERS)))
def test_intercepting_a_difference_equals_interpreting_the_whole(network: Any) -> None:
    """The CUDA list on CPU: what differs intercepted, or everything interpreted, with and without a shared cache."""
    policy = Policy.torch("cuda")
    cache = CastCache()
    _assert_equal(
        network,
        [
            lambda: interpret("cpu", policy=policy),
            lambda: autocast("cpu", policy=policy),
            lambda: autocast("cpu", policy=policy, cache_enabled=cache),
        ],
    )


@pytest.mark.parametrize("layer", sorted(set(LAYERS) - INSIDE_CPP_ON_CPU))
def test_every_layer_alone_trains_bit_for_bit_alike(layer: str) -> None:
    """No layer of the property tests is left to chance."""
    network = ([layer], [False], "mse", 1)
    _assert_equal(
        network,
        [lambda: torch.autocast("cpu"), lambda: interpret("cpu", policy=Policy.torch("cpu"))],
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_rehearse_cudnn(kind: type[nn.RNNBase]) -> None:
    """On a GPU a recurrent layer is one op in 16 bits; a CPU run under the CUDA list gives 16-bit results too."""
    for region in (autocast("cpu", policy=Policy.torch("cuda")), interpret("cpu", policy=Policy.torch("cuda"))):
        layer, x = kind(WIDTH, WIDTH), torch.randn(5, 2, WIDTH, requires_grad=True)
        with region:
            out, _ = layer(x)
        assert out.dtype is torch.bfloat16
        out.float().sum().backward()
        assert x.grad is not None
        assert all(p.grad is not None and p.grad.dtype is torch.float32 for p in layer.parameters())


def test_the_comparison_can_fail() -> None:
    """Another policy gives other bits."""
    with pytest.raises(AssertionError):
        _assert_equal(
            (["attention", "layer norm"], [False], "mse", 1),
            [lambda: torch.autocast("cpu"), lambda: autocast("cpu", policy="uniform")],
        )
