"""The kernels compile for GPUs on a machine without one, to wide loads and to the arithmetic that is written."""

from __future__ import annotations

import collections
import re

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is published for Linux only")

import triton.language as tl  # noqa: E402 # only where there is one
from triton.backends.compiler import GPUTarget  # noqa: E402 # as above
from triton.compiler import ASTSource  # noqa: E402 # as above

from mixprec._kernels._triton import _adamw, _multiply, _read  # noqa: E402 # as above

NUMBERS = dict.fromkeys(("n", "total", "before", "tensors"), "i32")
TABLES = dict.fromkeys(("chunks", "addresses", "rows", "steps"), "*i64")
WIDE = dict.fromkeys(("partials", "shares", "clip", "wide", "settings"), "*fp64")
NARROW = dict.fromkeys(("scale", "narrow", "factor", "flag", "factors", "grad_scale", "found_inf"), "*fp32")
TYPES = {**NUMBERS, **TABLES, **WIDE, **NARROW}


@pytest.fixture(autouse=True)
def _a_cache_of_its_own(monkeypatch, tmp_path):
    """Nothing is read from or written to the user's cache of compiled kernels."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compiled(kernel, capability, warps, *, fusion=False, **constants) -> collections.Counter[str]:
    """The instructions that `kernel` becomes, counted, with the options that it is launched with."""
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": warps, "enable_fp_fusion": fusion}
    text = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]
    return collections.Counter(re.findall(r"\b((?:ld|st)\.global[\w.]*|(?:fma|mul|add|sub|div|sqrt)[\w.]*f32)", text))


def reading(dtype, *, aligned=True):
    """The constants of `_partial`."""
    limit = _read.LIMITS[torch.float16]
    return {
        "dtype": dtype,
        "limit": limit,
        "has_shares": True,
        "has_scale": True,
        "aligned": aligned,
        "block": _read.BLOCK,
    }


def stepping(dtype, *, aligned=True):
    """The constants of `_step`."""
    return {"dtype": dtype, "has_scale": True, "has_found": True, "aligned": aligned, "block": _adamw.BLOCK}


@pytest.mark.parametrize("capability", [80, 90])
def test_the_read_loads_16_bytes_at_a_time(capability):
    """float16: 8 elements per thread are one load; where tensors begin anywhere, they are 8."""
    wide = compiled(_read._partial, capability, _read.WARPS, **reading(tl.float16))
    single = compiled(_read._partial, capability, _read.WARPS, **reading(tl.float16, aligned=False))

    assert wide["ld.global.v4.b32"] == 1
    assert single["ld.global.v4.b32"] == 0
    assert single["ld.global.b16"] == 16


def test_the_end_of_the_read_compiles():
    """With everything it can be asked for."""
    assert compiled(_read._finish, 90, _read.WARPS, has_scale=True, clips=True, block=1024)["st.global.b64"] == 5


def test_the_multiplication_loads_and_stores_16_bytes_at_a_time():
    """bfloat16: one load and one store for 8 elements."""
    constants = {"dtype": tl.bfloat16, "aligned": True, "block": _multiply.BLOCK}

    found = compiled(_multiply._multiply, 90, _multiply.WARPS, **constants)

    assert found["ld.global.v4.b32"] == found["st.global.v4.b32"] == 1


def test_the_counting_compiles():
    """Also the exponential in float64, which the compiler takes from a library."""
    assert compiled(_adamw._count, 90, 4, has_found=True, block=_adamw.TENSORS)["st.global.b32"] > 0


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16], ids=["float16", "bfloat16"])
def test_the_step_moves_16_bytes_at_a_time(capability, dtype):
    """8 elements per thread: 1 load of gradients and 2 each of masters and moments; the stores are as many."""
    found = compiled(_adamw._step, capability, _adamw.WARPS, **stepping(dtype))

    assert found["ld.global.v4.b32"] == found["st.global.v4.b32"] == 7


def test_the_step_rounds_every_operation_as_it_is_written():
    """Two fused multiply-adds per element, no others; divisions and roots correctly rounded, subnormals kept."""
    elements = 2 * _adamw.BLOCK // (32 * _adamw.WARPS)  # the loop's and what is left over

    found = compiled(_adamw._step, 90, _adamw.WARPS, **stepping(tl.bfloat16))
    free = compiled(_adamw._step, 90, _adamw.WARPS, fusion=True, **stepping(tl.bfloat16))

    assert found["fma.rn.f32"] == 2 * elements
    assert found["div.rn.f32"] == 3 * elements
    assert found["sqrt.rn.f32"] == elements
    assert not [name for name in found if "approx" in name or "full" in name or "ftz" in name]
    assert free["fma.rn.f32"] > 2 * elements  # left free, the compiler fuses more
