"""A CUDA policy on CPU tensors gives the dtypes that PyTorch's CUDA autocast gives, for every op PyTorch can sample.

No GPU is needed for PyTorch's side: a `FakeTensor` with `device="cuda"` carries CUDA's autocast key, so the casts of
the real C++ kernels happen, and only dtypes and shapes are computed. The same samples also run under PyTorch's own
CPU autocast and under its list interpreted in Python, where values are compared bit for bit.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from mixprec import Policy, autocast
from mixprec._autocast import interpret

pytest.importorskip("expecttest", reason="torch.testing._internal needs it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SAMPLES = 1
"""Samples per op, variant and dtype. With six (5,926 in all, torch 2.13) no other op differs; it takes a minute."""

NO_DATA = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
"""Their values are whatever memory held."""

OPS = [op for op in op_db if op.name not in NO_DATA]

INSIDE_CPP_ON_CPU = {
    "cov": "a matrix product after a subtraction",
    "corrcoef": "made of cov",
    "nn.functional.bilinear": "a batched product that is not on the list by this name",
    "einsum": "a product of vectors is no matrix product there, so the row for its parts says too much",
    "tensordot": "the same",
    "linalg.matrix_power": "matrix products",
    "linalg.pinv": "matrix products",
    "linalg.lstsq": "its driver reads memory that it was not given in some samples",
}
"""Ops that hide others in C++ with no single rule for the whole: PyTorch's CPU autocast casts inside, a mode cannot."""

INSIDE_CPP_ON_CUDA = {
    "sum_to_size": "a sum that takes no dtype",
    "trapz": "a sum after products",
    "trapezoid": "a sum after products",
    "cumulative_trapezoid": "a cumulative sum after products",
    "linalg.matrix_power": "matrix products",
    "native_batch_norm": "no cast: CUDA's kernel saves float32 statistics where CPU's saves 16 bits",
    "_native_batch_norm_legit": "the same",
    "linalg.pinv": "matrix products, which the fake kernel does not run",
    "svd_lowrank": "needs a QR decomposition in 16 bits, which CPU has not",
    "pca_lowrank": "the same",
}


@contextlib.contextmanager
def _native_cuda(dtype: torch.dtype) -> Iterator[None]:
    """PyTorch's CUDA autocast without CUDA: `torch.autocast("cuda")` would switch itself off."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)


def _calls() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    for op in OPS:
        for dtype in (torch.bfloat16, torch.float32):
            if op.supports_dtype(dtype, "cpu"):
                for _, sample in zip(range(SAMPLES), op.sample_inputs("cpu", dtype), strict=False):
                    yield op.name, op.op, (sample.input, *sample.args), sample.kwargs


def _run(function: Callable[..., Any], args: Any, kwargs: Any, region: Any) -> Any:
    """The result, or None where the call is refused."""
    torch.manual_seed(0)
    with region:
        try:
            return function(*args, **kwargs)
        except Exception:  # whatever an op refuses is refused here
            return None


def _dtypes(result: Any) -> list[Any]:
    return [leaf.dtype if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in tree_leaves(result)]


def _fake(args: Any) -> Any:
    def fake(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda")
        return torch.device("cuda") if isinstance(value, torch.device) or value == "cpu" else value

    return tree_map(fake, args)


def _cuda_dtypes(function: Callable[..., Any], args: Any, kwargs: Any) -> list[Any] | None:
    """What PyTorch's CUDA autocast gives; None where the call needs data or a layout that fake tensors have not."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        try:
            there = _fake((args, kwargs))
        except Exception:  # sparse and nested samples have no strides
            return None
        result = _run(function, *there, _native_cuda(torch.bfloat16))
    return None if result is None else _dtypes(result)


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or a.is_complex() or a.layout is not torch.strided:
        return True
    return torch.equal(a.nan_to_num(), b.nan_to_num()) if a.is_floating_point() else torch.equal(a, b)


def test_the_cpu_list_interpreted_in_python_is_torchs_cpu_autocast() -> None:
    """Dtypes and bits agree on every sample, but for the ops named above that cast inside C++."""
    different, compared = set(), 0
    for name, function, args, kwargs in _calls():
        expected = _run(function, args, kwargs, torch.autocast("cpu", torch.bfloat16))
        got = _run(function, args, kwargs, interpret("cpu", torch.bfloat16, policy=Policy.torch("cpu")))
        compared += expected is not None
        same = _dtypes(expected) == _dtypes(got)
        if not same or not all(map(_equal, tree_leaves(expected), tree_leaves(got))):
            different.add(name)
    assert compared > 700
    assert different <= set(INSIDE_CPP_ON_CPU)
    assert {"cov", "linalg.pinv"} <= different  # the comparison can fail


def test_the_cuda_list_on_cpu_gives_the_dtypes_of_torchs_cuda_autocast() -> None:
    """What a GPU run would compute in, a CPU run computes in: interpreted whole, and as a difference to CPU's list."""
    different: dict[type[autocast], set[str]] = {interpret: set(), autocast: set()}
    compared = 0
    for name, function, args, kwargs in _calls():
        expected = _cuda_dtypes(function, args, kwargs)
        if expected is None:
            continue
        compared += 1
        for kind, names in different.items():
            got = _run(function, args, kwargs, kind("cpu", torch.bfloat16, policy=Policy.torch("cuda")))
            if got is None or _dtypes(got) != expected:
                names.add(name)
    assert compared > 700
    for names in different.values():
        assert names <= set(INSIDE_CPP_ON_CUDA)
        assert {"trapezoid", "sum_to_size"} <= names  # the comparison can fail
