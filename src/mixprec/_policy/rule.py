"""A cast rule says what happens to the inputs of an op and which dtype its result has.

*Eligible* is PyTorch's word: a floating-point tensor on the region's device that is not float64. Tensors that are
not eligible pass through untouched under every rule, and so does everything that is not a tensor. Tensors inside
lists and tuples and optional tensors count. Only out-of-place calls are cast: `out=` and in-place forms are not.

| rule | eligible inputs | dtype of the result | backward keeps | PyTorch calls it |
| --- | --- | --- | --- | --- |
| `LOW` | cast to the region's dtype | region's dtype | 16-bit inputs | lower_precision_fp |
| `FP32` | cast to float32 | float32 (1) | float32 inputs | fp32 |
| `FP32_OUT` | as they come | float32 (1) | inputs as they came | fp32_set_opt_dtype, fp32_append_dtype |
| `WIDEST` | float32 if any is float32, else the region's dtype | as the op promotes | the cast inputs | promote |
| `KEEP` | as they come | as the op promotes | inputs as they came | (on no list) |
| `BANNED` | the call raises `BannedOpError` | | | (a kernel that raises) |

(1) or the dtype that the caller names with `dtype=`. A cast is differentiable: the gradient of an input has the
input's own dtype under every rule. What backward keeps applies to ops that keep inputs at all.

How `FP32_OUT` differs from `FP32`. PyTorch does not cast the input: it passes `dtype=torch.float32` to the op, if
the *first* argument is eligible and the caller named no dtype. The result's dtype is the same. The difference is
what exists besides it: no float32 copy of the input is made where the kernel reads 16 bits and accumulates in 32
(`softmax`, `sum` on CUDA), an op that saves its input (`linalg_vector_norm`) saves 16 bits, and an explicit dtype is
honoured without a detour. `FP32_OUT` can therefore be given only to ops that take `dtype=`.

How `WIDEST` meets the other 16-bit type: PyTorch raises `Unexpected floating ScalarType in at::autocast::prioritize`
for a float16 tensor in a bfloat16 region (and the reverse), and it does not look into optional tensors (the bias of
`bilinear`). A faithful interpreter does the same under `Policy.torch`.

Source: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/autocast_mode.h
"""

from __future__ import annotations

import enum

from mixprec.errors import InvalidValueError, UnknownNameError

__all__ = ["MODULE_RULES", "CastRule", "as_rule"]


class CastRule(str, enum.Enum):
    """What happens to an op's inputs; the module docstring holds the exact table."""

    LOW = "low"
    FP32 = "fp32"
    FP32_OUT = "fp32_out"
    WIDEST = "widest"
    KEEP = "keep"
    BANNED = "banned"


MODULE_RULES = (CastRule.LOW, CastRule.FP32, CastRule.KEEP)
"""The rules that a whole module can have. The other three speak of one op's arguments or result."""


def as_rule(value: CastRule | str) -> CastRule:
    """`value` as a rule; its name in any case ("FP32_OUT", "fp32-out") is accepted. Raises `UnknownNameError`."""
    if isinstance(value, CastRule):
        return value
    if not isinstance(value, str):
        raise InvalidValueError("rule", value, "a CastRule or its name: " + ", ".join(r.value for r in CastRule))
    name = value.strip().lower().replace("-", "_")
    if name not in CastRule._value2member_map_:
        raise UnknownNameError("rule", value, [r.value for r in CastRule])
    return CastRule(name)
