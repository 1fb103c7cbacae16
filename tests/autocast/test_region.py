"""`mixprec.autocast` is `torch.autocast`: same arguments, errors, warnings and uses; a policy is what it adds."""

from __future__ import annotations

import contextlib
import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import mixprec
from mixprec import Policy, autocast, errors
from mixprec._autocast import interpret

X = torch.linspace(-1, 1, 16).view(4, 4)


def _dtypes() -> tuple[torch.dtype, torch.dtype]:
    """The dtype of a matrix product and of the exponential of one: both tell which policy is active."""
    y = X @ X
    return y.dtype, y.exp().dtype


OFF = (torch.float32, torch.float32)
NATIVE = (torch.bfloat16, torch.bfloat16)
UNIFORM = (torch.bfloat16, torch.float32)


def test_the_signature_is_that_of_torch_autocast_and_a_policy() -> None:
    """Every parameter of `torch.autocast` comes first, with its default; `policy` is keyword-only."""
    theirs = list(inspect.signature(torch.autocast.__init__).parameters.values())
    ours = list(inspect.signature(autocast.__init__).parameters.values())
    assert [(p.name, p.default, p.kind) for p in ours[:-1]] == [(p.name, p.default, p.kind) for p in theirs]
    assert (ours[-1].name, ours[-1].default, ours[-1].kind) == ("policy", None, inspect.Parameter.KEYWORD_ONLY)


@pytest.mark.parametrize("policy", [None, "uniform"])
def test_a_region_is_a_torch_autocast(policy: str | None) -> None:
    """`isinstance` holds, and the attributes that other code reads are there."""
    region = autocast("cpu", torch.float16, policy=policy)
    assert isinstance(region, torch.autocast)
    assert isinstance(region, autocast)
    assert (region.device, region.fast_dtype) == ("cpu", torch.float16)
    assert issubclass(mixprec.autocast, torch.autocast)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((torch.device("cpu"),), {}),
        (("no such device",), {}),
        (("meta",), {}),
        (("cpu", torch.float32), {}),
        (("cpu", torch.int32), {}),
        (("cuda", torch.float16), {}),
        (("cpu",), {"no_such_argument": 1}),
        ((), {}),
    ],
    ids=str,
)
def test_errors_and_warnings_are_those_of_torch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What `torch.autocast` refuses or warns about, this does with the same type and text."""
    if "cuda" in args and torch.cuda.is_available():
        pytest.skip("with CUDA nothing is refused here")
    theirs, ours = _outcome(torch.autocast, args, kwargs), _outcome(autocast, args, kwargs)
    assert theirs[0] == ours[0]
    assert theirs[1].replace("autocast.__init__", "") == ours[1].replace("autocast.__init__", "")
    assert theirs[2] == ours[2]


def _outcome(kind: Callable[..., Any], args: Any, kwargs: Any) -> tuple[object, str, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = kind(*args, **kwargs)
        except Exception as error:
            return type(error), str(error), [str(w.message) for w in caught]
    return made._enabled, "", [str(w.message) for w in caught]


@pytest.mark.parametrize("policy", [None, "torch", "uniform", "lean", "careful", Policy.torch("cuda")])
def test_a_region_enters_torchs_own_state_and_leaves_it_as_it_was(policy: Any) -> None:
    """Inside, `torch.is_autocast_enabled` and the dtype say so; outside, also after an error, nothing is left."""
    before = torch.get_autocast_dtype("cpu")
    with contextlib.suppress(ZeroDivisionError), autocast("cpu", torch.float16, cache_enabled=False, policy=policy):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is torch.float16
        assert not torch.is_autocast_cache_enabled()
        1 / 0  # noqa: B018 - the error is the point
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") is before
    assert torch.is_autocast_cache_enabled()
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(
    "policy", [None, "torch", Policy.torch("cpu"), "base torch cpu", Policy.torch("cpu").with_op("mm", "low")]
)
def test_a_policy_that_equals_torchs_list_puts_nothing_on_the_stack(policy: Any) -> None:
    """No function mode is pushed, so no op costs more than under `torch.autocast`."""
    with autocast("cpu", policy=policy):
        assert torch._C._len_torch_function_stack() == 0
        assert _dtypes() == NATIVE


@pytest.mark.parametrize("policy", ["uniform", str(Policy.uniform()), "base uniform\nop exp: fp32", Policy.uniform()])
def test_a_policy_may_be_a_value_a_name_or_a_text(policy: Any) -> None:
    """All three forms mean the same."""
    with autocast("cpu", policy=policy):
        assert _dtypes() == UNIFORM


def test_a_policy_that_does_not_exist_is_refused_with_suggestions() -> None:
    """A wrong name, a wrong text and a wrong type each say what is accepted; the right name beside them works."""
    with pytest.raises(errors.UnknownNameError, match="did you mean 'uniform'"):
        autocast("cpu", policy="unifrom")
    with pytest.raises(errors.PolicySyntaxError):
        autocast("cpu", policy="base uniform\nop softmax fp32")
    with pytest.raises(errors.InvalidValueError, match="a Policy, the name of one, or the text of one"):
        autocast("cpu", policy=["uniform"])  # type: ignore[arg-type]  # the point
    autocast("cpu", policy="uniform")


def test_a_decorated_function_runs_in_a_region_each_time() -> None:
    """Decorating works with and without a policy, keeps the name, and a decorated function may call itself."""

    @autocast("cpu", policy="uniform")
    def ours(depth: int = 2) -> list[tuple[torch.dtype, torch.dtype]]:
        """Its docstring."""
        return [_dtypes(), *(ours(depth - 1) if depth else [])]

    @autocast("cpu")
    def native() -> tuple[torch.dtype, torch.dtype]:
        return _dtypes()

    assert ours() == [UNIFORM] * 3
    assert ours() == [UNIFORM] * 3
    assert ours.__name__ == "ours"
    assert ours.__doc__ == "Its docstring."
    assert native() == NATIVE
    assert _dtypes() == OFF


@pytest.mark.parametrize("policy", [None, "uniform"])
def test_what_cannot_be_decorated_is_refused_as_torch_does(policy: str | None) -> None:
    """Decorating something that cannot be called raises torch's TypeError."""
    with pytest.raises(TypeError, match="requires a callable"):
        autocast("cpu", policy=policy)(3)  # type: ignore[type-var]  # the point


def test_the_innermost_region_decides() -> None:
    """A region inside another has its own policy, and the outer one holds again after it."""
    with autocast("cpu", policy="uniform"):
        assert _dtypes() == UNIFORM
        with autocast("cpu"):
            assert _dtypes() == NATIVE
            with autocast("cpu", policy=Policy.uniform().with_op("exp", "low")):
                assert _dtypes() == NATIVE
                assert F.softmax(X @ X, -1).dtype is torch.float32
            assert _dtypes() == NATIVE
        assert _dtypes() == UNIFORM
        with pytest.raises(ZeroDivisionError), autocast("cpu"):
            1 / 0  # noqa: B018 - the error is the point
        assert _dtypes() == UNIFORM
    assert _dtypes() == OFF


@pytest.mark.parametrize("kind", [torch.autocast, autocast])
@pytest.mark.parametrize("outer", [autocast, interpret])
def test_a_disabled_region_switches_everything_off(kind: type[torch.autocast], outer: type[autocast]) -> None:
    """`enabled=False`, ours or torch's, inside a region with a policy: no casts at all, and on again after it."""
    with outer("cpu", policy="uniform"):
        with kind("cpu", enabled=False):
            assert _dtypes() == OFF
            assert F.multi_head_attention_forward(*_attention())[0].dtype is torch.float32
            F.binary_cross_entropy(torch.rand(3), torch.rand(3))
            with kind("cpu"):
                assert _dtypes() == (UNIFORM if kind is torch.autocast else NATIVE)
        assert _dtypes() == UNIFORM
    with autocast("cpu", enabled=False, policy="uniform"):
        assert _dtypes() == OFF
        assert torch._C._len_torch_function_stack() == 0


def _attention() -> tuple[Any, ...]:
    x, w, b = torch.randn(3, 1, 4), torch.randn(12, 4), torch.randn(12)
    return (x, x, x, 4, 2, w, b, None, None, False, 0.0, torch.randn(4, 4), torch.randn(4))


def test_a_torch_region_inside_keeps_the_policy_and_brings_its_dtype() -> None:
    """Model code that says `torch.autocast(dtype=...)` chooses the dtype; the policy still says which ops."""
    with autocast("cpu", torch.bfloat16, policy="uniform"), torch.autocast("cpu", torch.float16):
        y = X @ X
        assert y.dtype is torch.float16
        assert y.exp().dtype is torch.float32
        assert F.conv1d(X[None], torch.ones(4, 4, 1)).dtype is torch.float16


def test_regions_of_two_devices_do_not_disturb_each_other() -> None:
    """A region of another device inside (here: one that is off) leaves the CPU policy in force."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = autocast("cuda", torch.float16, policy="careful")
    with autocast("cpu", policy="uniform"), other:
        assert _dtypes() == UNIFORM


def test_another_thread_runs_without_the_region() -> None:
    """State is per thread: a thread started in a region computes in float32, and can have a region of its own."""
    seen: list[tuple[torch.dtype, torch.dtype]] = []

    def work() -> None:
        seen.append(_dtypes())
        with autocast("cpu", policy="uniform"):
            seen.append(_dtypes())
        seen.append(_dtypes())

    with autocast("cpu"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert _dtypes() == NATIVE
    assert seen == [OFF, UNIFORM, OFF]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("policy", [None, "uniform", "lean"])
def test_grad_modes_do_not_change_the_casts(mode: Any, policy: str | None) -> None:
    """Under `no_grad` and `inference_mode` the dtypes are those of training."""
    layer = torch.nn.Linear(4, 4)
    with autocast("cpu", policy=policy):
        expected = layer(X).dtype, F.layer_norm(layer(X), (4,)).dtype
        with mode():
            assert (layer(X).dtype, F.layer_norm(layer(X), (4,)).dtype) == expected


def test_an_op_of_a_library_with_a_registered_autocast_is_cast_by_it() -> None:
    """`torch.library.register_autocast` works in regions with a policy, and a rule for the op comes before it."""

    @torch.library.custom_op("mixprec_region_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch.library.register_autocast("mixprec_region_test::double", "cpu", torch.float16)
    y = torch.ones(3)
    for region in (autocast("cpu"), autocast("cpu", policy="uniform"), interpret("cpu", policy="torch")):
        with region:
            assert double(y).dtype is torch.float16
    for rule, dtype in {"low": torch.bfloat16, "fp32": torch.float32, "keep": torch.float64}.items():
        with autocast("cpu", policy=Policy.torch("cpu").with_op("mixprec_region_test::double", rule)):
            assert double(y.double() if rule == "keep" else y).dtype is dtype


def test_a_banned_op_raises_with_its_replacement_where_the_policy_bans_it() -> None:
    """PyTorch's CPU list is silent about `binary_cross_entropy`; a policy that bans it is not, in any spelling."""
    p, t = torch.rand(3), torch.rand(3)
    with autocast("cpu"):
        F.binary_cross_entropy(p, t)
    for policy in ("uniform", "lean", "careful", Policy.torch("cuda")):
        with autocast("cpu", policy=policy):
            for call in (F.binary_cross_entropy, torch.nn.BCELoss(), torch.ops.aten.binary_cross_entropy):
                with pytest.raises(errors.BannedOpError, match="binary_cross_entropy_with_logits") as caught:
                    call(p, t)
                assert caught.value.op == "binary_cross_entropy"
            F.binary_cross_entropy_with_logits(p, t)
            F.binary_cross_entropy(p.double().to("meta"), t.double().to("meta"))  # not on the region's device


def test_in_place_and_out_forms_are_not_cast() -> None:
    """As under PyTorch's autocast: `out=` and in-place forms run on what they are given."""
    low = X.bfloat16()
    with autocast("cpu", policy="uniform"):
        assert torch.exp(low, out=torch.empty(4, 4, dtype=torch.bfloat16)).dtype is torch.bfloat16
        assert low.clone().exp_().dtype is torch.bfloat16
        assert low.exp().dtype is torch.float32
        with pytest.raises(RuntimeError, match="dtype"):
            X.clone().addmm_(low, low)


def test_float64_and_integers_are_never_cast() -> None:
    """Only floating tensors of at most 32 bits on the region's device are eligible."""
    with autocast("cpu", policy="uniform"):
        assert (X.double() @ X.double()).dtype is torch.float64
        assert X.double().exp().dtype is torch.float64
        assert torch.softmax(X.double(), -1).dtype is torch.float64
        assert torch.arange(3).sum().dtype is torch.int64
        assert torch.ones(2, 2, dtype=torch.complex64).exp().dtype is torch.complex64


def test_a_dtype_that_the_caller_names_is_honoured() -> None:
    """`FP32_OUT` yields to an explicit dtype, given by keyword or by position."""
    low = X.bfloat16()
    with autocast("cpu", policy="uniform"):
        assert low.sum().dtype is torch.float32
        assert low.sum(dtype=torch.bfloat16).dtype is torch.bfloat16
        assert torch.softmax(low, -1, torch.float64).dtype is torch.float64
        assert F.softmax(input=low, dim=-1).dtype is torch.float32
