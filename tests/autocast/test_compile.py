"""`torch.compile(fullgraph=True)` traces a region, inside the compiled function or around it, to what runs eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from mixprec import Policy, autocast

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own compiler internals
    pytest.mark.filterwarnings("ignore:Using `torch.compile"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch._dynamo.reset()


class Net(nn.Module):
    """Ops that policies differ in: methods, operators, functions, composites and modules."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.norm(self.inner(x))
        h = h + self.attention(h, h, h)[0]
        y = self.head(h)
        return (
            F.softmax(y, -1),
            (h**2).mean(),
            (2**h).sum(),
            h.exp(),
            y.norm(),
            F.pad(y, (1, 1), mode="reflect"),
            F.max_pool1d(y, 2),
            F.interpolate(y, scale_factor=2.0),
            F.mse_loss(y, y.float()),
            torch.einsum("bij,bkj->bik", y, y),
            torch.linalg.vector_norm(y),
            F.pairwise_distance(y, y),
            F.cross_entropy(y.flatten(0, 1), torch.arange(6) % 4),
        )


POLICIES: dict[str, Any] = {
    "none": None,
    "uniform": "uniform",
    "lean": Policy.lean(),
    "torch cuda": Policy.torch("cuda"),
    "text": "base uniform\nop exp: keep",
}

MODULE_POLICIES = {
    "fp32 module": Policy.torch("cpu").with_module("norm", "fp32"),
    "fp32 composite": Policy.uniform().with_module("attention", "fp32").with_op("exp", "keep"),
    "op in module": Policy.uniform().with_op("linear", "fp32", module="head"),
    "low module": Policy.uniform().with_module(nn.LayerNorm, "low"),
}


def _compile(function: Any, counter: Any = "aot_eager") -> Any:
    """Through AOT autograd: its graphs run without function modes, so what they compute is what was traced."""
    return torch.compile(function, fullgraph=True, backend=counter)


def _equal(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...]) -> None:
    assert [t.dtype for t in a] == [t.dtype for t in b]
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y)


def _inside(net: Net, policy: Any) -> Callable[[torch.Tensor], Any]:
    def run(x: torch.Tensor) -> Any:
        with autocast("cpu", policy=policy):
            return net(x)

    return run


def _decorated(net: Net, policy: Any) -> Callable[[torch.Tensor], Any]:
    @autocast("cpu", policy=policy)
    def run(x: torch.Tensor) -> Any:
        return net(x)

    return run


@pytest.mark.parametrize(
    ("policy", "form"), [("none", _inside), ("uniform", _inside), ("lean", _decorated), ("text", _decorated)]
)
def test_a_region_inside_the_compiled_function(policy: str, form: Callable[..., Any]) -> None:
    """One graph, compiled once, whose results are bit-equal to the eager ones; nothing is left behind."""
    net, x = Net(), torch.randn(2, 3, 8)
    function = form(net, POLICIES[policy])
    counter = CompileCounterWithBackend("aot_eager")
    compiled = _compile(function, counter)
    for _ in range(3):
        _equal(compiled(x), function(x))
    assert counter.frame_count == 1


@pytest.mark.parametrize("policy", ["none", "lean", "torch cuda", *MODULE_POLICIES])
def test_a_region_around_the_compiled_function(policy: str) -> None:
    """A new region every step, as a training loop makes them, does not compile again."""
    net, x = Net(), torch.randn(2, 3, 8)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = _compile(net, counter)
    chosen = {**POLICIES, **MODULE_POLICIES}[policy]
    for _ in range(3):
        with autocast("cpu", policy=chosen):
            expected = net(x)
        with autocast("cpu", policy=chosen):
            got = compiled(x)
        _equal(got, expected)
    assert counter.frame_count == 1


def test_another_policy_is_another_graph() -> None:
    """Compiled code is not reused under another policy, and is when the first one comes back."""
    x = torch.randn(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x @ x, (4,)).exp()

    counter = CompileCounterWithBackend("aot_eager")
    compiled = _compile(step, counter)
    for policy in ("uniform", None, "lean", "uniform", None):
        with autocast("cpu", policy=policy):
            _equal((compiled(x),), (step(x),))
    assert counter.frame_count == 3


def test_a_policy_that_is_an_argument_or_an_attribute_is_guarded() -> None:
    """A function that takes its policy compiles again for another one."""

    class Holder(nn.Module):
        def __init__(self, policy: Policy) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with autocast("cpu", policy=self.policy):
                return (x @ x).exp()

    holder, x = Holder(Policy.uniform()), torch.randn(4, 4)
    compiled = _compile(holder)
    assert compiled(x).dtype is torch.float32
    holder.policy = Policy.torch("cpu")
    assert compiled(x).dtype is torch.bfloat16


@pytest.mark.parametrize("policy", ["uniform", "lean"])
def test_training_through_aot_autograd(policy: str) -> None:
    """Forward and backward of a compiled step give the eager gradients."""
    x = torch.randn(2, 3, 8)
    grads = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = Net()
        function = _compile(net) if compiled else net
        with autocast("cpu", policy=policy):
            out = function(x)
            loss = out[-1].float() + out[1].float()
        loss.backward()
        grads.append([p.grad for p in net.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)


def test_inductor_compiles_a_region() -> None:
    """The default backend compiles it."""
    x = torch.randn(4, 4)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x @ x, -1)

    def inside(x: torch.Tensor) -> torch.Tensor:
        with autocast("cpu", policy="uniform"):
            return plain(x)

    assert torch.compile(inside, fullgraph=True)(x).dtype is torch.float32


def test_equal_casts_are_merged_by_the_compiler() -> None:
    """While compiling our cache is silent; the graph casts an activation once for three projections."""
    ws = [nn.Parameter(torch.randn(4, 4)) for _ in range(3)]

    def project(x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        return sum(F.linear(h, w) for w in ws)  # type: ignore[return-value]

    counter = CompileCounterWithBackend("aot_eager")
    with autocast("cpu", policy="lean") as region:
        _compile(project, counter)(torch.randn(2, 4)).sum().backward()
        assert region.statistics.casts == 0


@pytest.mark.parametrize("policy", ["uniform", "lean"])
def test_a_checkpoint_inside_a_compiled_function(policy: str) -> None:
    """Activation checkpointing inside compiled code keeps the policy in both passes."""
    x = torch.randn(2, 3, 8, requires_grad=True)
    net = Net()

    def block(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = net.norm(net.inner(x)).exp()
        return out

    def step(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False)

    with autocast("cpu", policy=policy):
        expected = block(x)
        got = _compile(step)(x)
    assert got.dtype is expected.dtype
    (ours,) = torch.autograd.grad(got.float().sum(), x)
    (theirs,) = torch.autograd.grad(expected.float().sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_a_banned_op_is_refused_while_compiling() -> None:
    """The error names the replacement, whoever raises it in the end."""

    def loss(p: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(p, p)

    with (
        autocast("cpu", policy="uniform"),
        pytest.raises(Exception, match="binary_cross_entropy_with_logits"),
    ):
        _compile(loss)(torch.rand(3))


def test_a_region_built_outside_and_entered_inside_is_not_taken_for_a_plain_one() -> None:
    """Dynamo cannot trace it: with fullgraph it says so, without it the function runs eagerly, policy and all."""
    region = autocast("cpu", policy="uniform")
    x = torch.randn(4, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        with region:
            return (x @ x).exp()

    with pytest.raises(torch._dynamo.exc.Unsupported, match="context manager"):
        _compile(step)(x)
    torch._dynamo.reset()
    assert torch.compile(step, backend="aot_eager")(x).dtype is torch.float32

    plain = autocast("cpu")

    def native(x: torch.Tensor) -> torch.Tensor:
        with plain:
            return (x @ x).exp()

    assert _compile(native)(x).dtype is torch.bfloat16


def test_module_rules_need_the_region_around_the_compiled_function() -> None:
    """Hooks cannot be traced: the errors say where the region belongs, and how to name the root around a function."""
    net, x = Net(), torch.randn(2, 3, 8)
    policy = MODULE_POLICIES["fp32 module"]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Enter it outside"):
        _compile(_inside(net, policy))(x)
    torch._dynamo.reset()

    def around(x: torch.Tensor) -> Any:
        return net(x)

    with (
        autocast("cpu", policy=policy),
        pytest.raises(torch._dynamo.exc.Unsupported, match=r"rooted\(model\)"),
    ):
        _compile(around)(x)
    torch._dynamo.reset()
    with autocast("cpu", policy=policy).rooted(net):
        _equal(_compile(around)(x), net(x))


@pytest.mark.parametrize("policy", [None, "uniform"])
def test_torch_export_keeps_the_casts(policy: str | None) -> None:
    """An exported program computes in the dtypes of the eager one."""

    class Exported(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with autocast("cpu", policy=policy):
                y = x @ x
                return y, F.softmax(y, -1)

    module, x = Exported(), torch.randn(4, 4)
    program = torch.export.export(module, (x,))
    assert [t.dtype for t in program.module()(x)] == [t.dtype for t in module(x)]
    if policy is None:
        program = torch.export.export(module, (x,), strict=True)
        assert [t.dtype for t in program.module()(x)] == [t.dtype for t in module(x)]


def test_an_error_inside_a_traced_region_leaves_it() -> None:
    """A function that catches an error from its own region goes on without the policy, compiled as eagerly."""

    def step(x: torch.Tensor) -> torch.Tensor:
        try:
            with autocast("cpu", policy="uniform"):
                raise ValueError
        except ValueError:
            return x.bfloat16().exp()

    x = torch.randn(4)
    assert _compile(step)(x).dtype is step(x).dtype is torch.bfloat16


class _Head(nn.Module):
    """A product in 16 bits and a head in float32 whose gradient does not fit into float16."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mix", torch.ones(4, 4))
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.mix
        return self.head(y)


class _DisabledByHand(_Head):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.mix
        with torch.autocast("cpu", enabled=False):
            return self.head(y.float())


def _head_gradient(kind: type[_Head], region: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = kind()
    compiled = _compile(model)
    with region:
        y = compiled(torch.ones(1, 4))
    (y.float() * 16384).sum().backward()
    assert model.head.weight.grad is not None
    return model.head.weight.grad


@pytest.mark.parametrize(
    "policy",
    [Policy.torch("cpu").with_module(nn.Linear, "fp32"), Policy.torch("cpu").with_op("linear", "fp32")],
    ids=["module", "op"],
)
def test_the_compiled_backward_of_a_float32_op_is_in_float32(policy: Policy) -> None:
    """As eagerly: the gradient 65536 is finite. PyTorch's own region, disabled by hand inside, gives infinity there."""
    from torch._functorch import config

    assert _head_gradient(_Head, autocast("cpu", torch.float16, policy=policy)).tolist() == [[65536.0] * 4]
    assert config.backward_pass_autocast == "same_as_forward"
    torch._dynamo.reset()
    assert _head_gradient(_DisabledByHand, torch.autocast("cpu", torch.float16)).isinf().all()
