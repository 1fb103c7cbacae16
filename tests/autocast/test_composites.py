"""Ops inside PyTorch's Python functions are seen, and opening a function changes nothing but that."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from mixprec import Policy, autocast
from mixprec._autocast._composites import opened
from mixprec._autocast._functions import aten_functions, functions_by_op, python_functions
from mixprec._autocast._plan import plan_for
from mixprec._autocast._reach import reach
from mixprec._autocast._rules import Opening, plain

NOT_OPENED = {
    "torch.functional.meshgrid",  # asks through a private function; nothing in it is cast
    "torch.functional.boolean_dispatch.<locals>.fn",  # unique and unique_consecutive with all their flags off
    "torch.distributed.distributed_c10d.all_reduce_coalesced",  # collectives do not ask
    "torch.distributed.distributed_c10d.all_gather_coalesced",
}


def test_every_python_function_of_torch_that_asks_is_opened() -> None:
    """What is left closed is known by name: symbolic scalars, initialisers and four more."""
    closed = {f"{f.__module__}.{f.__qualname__}" for f in python_functions() if opened(f) is None}  # type: ignore[arg-type]
    unknown = {n for n in closed if not n.startswith(("torch.nn.init.", "torch.sym_", "torch._sym_"))}
    assert unknown <= NOT_OPENED


def test_a_copy_has_the_body_and_the_defaults_of_its_original() -> None:
    """Only the answer to "has it a torch function?" differs."""
    copy = opened(F.layer_norm)
    assert copy is not None
    assert copy.__code__ is F.layer_norm.__code__
    assert copy.__defaults__ == F.layer_norm.__defaults__
    assert copy.__globals__["has_torch_function_variadic"]() is False
    assert F.layer_norm.__globals__["has_torch_function_variadic"] is torch.overrides.has_torch_function_variadic
    assert opened(F.layer_norm) is copy


class _Seen(TorchFunctionMode):
    """Records the functions that reach it."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def _mha(x: torch.Tensor) -> torch.Tensor:
    w, b = torch.linspace(-1, 1, 48).view(12, 4), torch.zeros(12)
    out: torch.Tensor = F.multi_head_attention_forward(
        x, x, x, 4, 2, w, b, None, None, False, 0.0, torch.eye(4), torch.zeros(4), need_weights=True
    )[1]
    return out


COMPOSITES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "multi_head_attention_forward": (_mha, "softmax"),
    "softmax": (lambda x: F.softmax(x, -1), "softmax"),
    "softmin": (lambda x: F.softmin(x, -1), "softmax"),
    "log_softmax": (lambda x: F.log_softmax(x, -1), "log_softmax"),
    "gumbel_softmax": (lambda x: F.gumbel_softmax(x, hard=False), "softmax"),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), "layer_norm"),
    "normalize": (lambda x: F.normalize(x), "linalg_vector_norm"),
    "cosine_embedding_loss": (lambda x: F.cosine_embedding_loss(x[0], x[1], torch.ones(3)), "cosine_embedding_loss"),
    "mse_loss": (lambda x: F.mse_loss(x, x), "mse_loss"),
    "gaussian_nll_loss": (lambda x: F.gaussian_nll_loss(x, x, x.abs() + 1), "log"),
    "cross_entropy": (lambda x: F.cross_entropy(x[0], torch.tensor([0, 1, 2])), "cross_entropy_loss"),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0), "upsample_nearest1d"),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), "max_pool1d"),
    "Tensor.norm": (lambda x: x.norm(), "linalg_vector_norm"),
    "torch.norm": (lambda x: torch.norm(x, dim=-1), "linalg_vector_norm"),
    "Tensor.__rpow__": (lambda x: 2**x, "pow"),
    "Tensor.__pow__": (lambda x: x**2, "pow"),
    "Tensor.__rdiv__": (lambda x: 1 / (x + 3), "reciprocal"),
    "Tensor.__matmul__": (lambda x: x @ x.mT, "matmul"),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), "einsum"),
    "einsum of a list": (lambda x: torch.einsum("bij,bkj->bik", [x, x]), "einsum"),
    "pairwise_distance": (lambda x: F.pairwise_distance(x[0], x[1]), "linalg_vector_norm"),
    "pad": (lambda x: F.pad(x, (1, 1), mode="reflect"), "reflection_pad1d"),
    "tensordot": (lambda x: torch.tensordot(x, x, dims=([2], [2])), "tensordot"),
    "chain_matmul": (lambda x: torch.linalg.multi_dot([x[0], x[0].T, x[0]]), "linalg_multi_dot"),
}
"""A function -> how it is called, and the op inside it that a policy speaks of."""


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_ops_inside_a_function_follow_the_policy(name: str) -> None:
    """A rule for the inner op alone decides the dtype of what the outer function gives, for 16-bit inputs."""
    function, op = COMPOSITES[name]
    x = (torch.arange(24.0).view(2, 3, 4) / 24).bfloat16()
    results = {}
    for rule in ("fp32", "low"):
        policy = Policy.torch("cpu").with_op(op, rule)
        torch.manual_seed(0)
        with autocast("cpu", policy=policy):
            results[rule] = function(x)
    assert results["fp32"].dtype is torch.float32
    assert results["low"].dtype is torch.bfloat16
    torch.testing.assert_close(results["fp32"], results["low"].float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_policy_that_changes_nothing_inside_changes_no_value(name: str) -> None:
    """With a rule for an op that does not occur, results are bit-equal to PyTorch's own region."""
    function, _ = COMPOSITES[name]
    x = torch.arange(24.0).view(2, 3, 4) / 24
    torch.manual_seed(0)
    with torch.autocast("cpu"):
        expected = function(x)
    torch.manual_seed(0)
    with autocast("cpu", policy=Policy.torch("cpu").with_op("erfinv", "fp32")):
        got = function(x)
    assert got.dtype is expected.dtype
    assert torch.equal(got, expected)


def test_a_mode_of_the_users_still_sees_the_calls() -> None:
    """Modes under and over a region's are called for what they would be called for without it."""
    x = torch.ones(2, 2)
    outer, inner = _Seen(), _Seen()
    with outer, autocast("cpu", policy="uniform"), inner:
        F.softmax(x @ x, -1)
    assert inner.names == ["matmul", "softmax"]
    assert "matmul" in outer.names
    assert "softmax" in outer.names


class _Tagged(torch.Tensor):
    """A subclass with a torch function of its own, which counts its calls."""

    calls: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


def test_a_tensor_subclass_keeps_its_torch_function() -> None:
    """An op on a subclass is cast and then handed to the subclass."""
    _Tagged.calls.clear()
    x = torch.ones(2, 2).as_subclass(_Tagged)
    with autocast("cpu", policy="uniform"):
        y = torch.exp(x.bfloat16())
    assert y.dtype is torch.float32
    assert isinstance(y, _Tagged)
    assert "exp" in _Tagged.calls


def test_a_function_of_another_library_is_opened_too() -> None:
    """An overridable Python function that PyTorch does not know hides nothing from the policy."""
    with autocast("cpu", policy="uniform"):
        assert _library_softmax(torch.ones(2, 2).bfloat16()).dtype is torch.float32


def _library_softmax(x: torch.Tensor) -> torch.Tensor:
    if has_torch_function((x,)):
        out: torch.Tensor = handle_torch_function(_library_softmax, (x,), x)
        return out
    return x.softmax(-1)


def test_every_spelling_of_an_op_is_found() -> None:
    """Builtins, methods, operators, aten packets and overloads of one op are all in the index."""
    pow_ = functions_by_op()["pow"]
    assert {torch.pow, torch.Tensor.pow, torch.Tensor.__pow__, operator.pow} <= set(pow_)
    assert torch.ops.aten.pow.Tensor_Scalar in aten_functions("pow")
    assert torch.ops.aten.pow in aten_functions("pow")
    assert not any(getattr(f, "_schema", None) and f._schema.is_mutable for f in aten_functions("pow"))
    softmax = functions_by_op()["softmax"]
    assert {torch.softmax, torch.Tensor.softmax, torch.special.softmax} <= set(softmax)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.exp(x),
        lambda x: x.exp(),
        lambda x: torch.ops.aten.exp(x),
        lambda x: torch.ops.aten.exp.default(x),
        lambda x: torch._VF.exp(x),  # type: ignore[attr-defined]
        lambda x: torch.special.expm1(x),
        lambda x: x**2,
        lambda x: 2**x,
        lambda x: x.pow(2),
        lambda x: torch.linalg.vector_norm(x),
        lambda x: torch.nn.LayerNorm(4)(x),
        lambda x: torch.nn.Softmax(-1)(x),
    ],
)
def test_every_spelling_of_an_op_is_cast(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """However an op is called, the policy's rule holds."""
    with autocast("cpu", policy="uniform"):
        assert call(torch.ones(2, 4).bfloat16()).dtype is torch.float32


def test_what_a_function_may_call_is_read_off_its_code() -> None:
    """Globals, attributes, operators, closures and inner Python functions count; what is not mentioned does not."""
    assert "softmax" in reach(F.multi_head_attention_forward)
    assert "linalg_vector_norm" not in reach(F.relu)
    assert "vector_norm" in reach(F.normalize)  # through Tensor.norm and torch.norm
    assert "pow" in reach(torch.Tensor.__rpow__)
    assert "max_pool2d" in reach(F.max_pool2d)  # through the functions that it picks from
    assert {"pow", "matmul", "neg", "rsub"} <= reach(lambda a, b: (-a @ b) ** 2 - 1)
    assert "matmul" not in reach(lambda a, b: a + b)


@pytest.mark.parametrize("policy", [Policy.uniform(), Policy.lean(), Policy.torch("cuda")])
def test_a_function_with_nothing_to_see_inside_is_not_opened(policy: Policy) -> None:
    """Common functions that no rule speaks of cost no more than a lookup; those with inner rules stay open."""
    plan = plan_for(policy, "cpu")
    assert plan is not None
    table = plan.outside.table
    assert all(table[f] is plain for f in (F.relu, F.dropout, F.embedding, F.silu, F.leaky_relu))
    assert all(isinstance(table[f], Opening) for f in (F.multi_head_attention_forward, F.normalize, F.gumbel_softmax))


def test_what_runs_other_code_stays_open() -> None:
    """`Tensor.backward` runs hooks, and a distance function is the user's own code: the policy holds in both."""
    seen: list[torch.dtype] = []

    def hook(grad: torch.Tensor) -> None:
        seen.append(grad.bfloat16().exp().dtype)

    x = torch.randn(4, 4, requires_grad=True)
    x.register_hook(hook)
    with autocast("cpu", policy=Policy.torch("cpu").with_op("exp", "fp32")):
        x.sum().backward()
        torch.autograd.grad((x * 2).sum(), x)
        F.triplet_margin_with_distance_loss(
            x, x, x, distance_function=lambda a, b: (seen.append(a.bfloat16().exp().dtype), (a - b).sum(-1))[1]
        )
    assert set(seen) == {torch.float32}
    assert len(seen) == 4
