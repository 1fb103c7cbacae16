"""The interpreter computes with NumPy; two of its operations round as no GPU does, and are put right here.

It rounds a fused multiply-add twice, cuts float32 to bfloat16 instead of rounding to nearest, ties to even, and makes
other numbers of bfloat16's subnormal ones. Both are in `create_fma` and `_convert_float` of
https://github.com/triton-lang/triton/blob/v3.7.1/python/triton/runtime/interpreter.py
"""

from __future__ import annotations

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

_cast = interpreter.InterpreterBuilder.cast_impl


def multiply_add(builder, x, y, z):
    """x × y + z, rounded once: the product of two float32 is exact in float64."""
    exact = x.data.astype(np.float64) * y.data + z.data
    return interpreter.TensorHandle(exact.astype(x.data.dtype), z.dtype.scalar)


def cast(builder, source, target):
    """As the interpreter, but right between float32 and bfloat16, which is the upper half of one."""
    kinds = (source.dtype.scalar, target.scalar)
    if kinds == (tl.bfloat16, tl.float32):
        return interpreter.TensorHandle((source.data.astype(np.uint32) << 16).view(np.float32), target.scalar)
    if kinds != (tl.float32, tl.bfloat16):
        return _cast(builder, source, target)
    bits = source.data.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    quiet_nan = (bits >> 16) | np.uint32(0x40)
    halves = np.where(np.isnan(source.data), quiet_nan, rounded)
    return interpreter.TensorHandle(halves.astype(np.uint16), target.scalar)


@pytest.fixture(autouse=True)
def _as_a_gpu_rounds(monkeypatch):
    """The two operations put right; NumPy's warnings about infinities and NaN are of no interest."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_fma", multiply_add)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "cast_impl", cast)
    with np.errstate(all="ignore"):
        yield
