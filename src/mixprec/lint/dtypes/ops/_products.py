"""Matrix products and convolutions: what autocast runs in 16 bits."""

from __future__ import annotations

from dataclasses import replace

from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._dtypes import LOW
from mixprec.lint.dtypes._values import UNKNOWN, Symbol, Tensor, Value
from mixprec.lint.dtypes.ops._result import Handler, made

__all__ = ["PRODUCTS"]

_NAMES = """
    addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d dot einsum inner linear matmul mm multi_dot mv prelu scaled_dot_product_attention tensordot vdot
"""
_MAYBE_RANK0 = frozenset({"dot", "einsum", "inner", "matmul", "tensordot", "vdot"})


def _product(call: Call) -> Value:
    value = made(call, rank0=None if call.name in _MAYBE_RANK0 else False)
    if isinstance(value, Symbol):
        return Tensor(call.region.dtypes) if call.region.enabled and call.region.dtypes else UNKNOWN
    mixed = value.dtypes is not None and len(value.dtypes) > 1 and not value.dtypes <= LOW
    return replace(value, dtypes=None) if mixed else value


PRODUCTS: dict[str, Handler] = dict.fromkeys(_NAMES.split(), _product)
"""Products of matrices, vectors and filters."""
