"""A floating-point format is a row of three facts; every number about it is derived from them.

The facts: how many exponent bits, how many stored mantissa bits, and which values are not finite. `FloatFormat.round`
is the exact round-to-nearest-even conversion that hardware and PyTorch perform, written in Python floats:

    >>> FP16.max, FP16.tiny, FP16.smallest_subnormal == 2.0**-24
    (65504.0, 6.103515625e-05, True)
    >>> FP16.round(2049.0), FP16.round(65520.0), FP16.round(2.0**-25)
    (2048.0, inf, 0.0)
    >>> find_format("torch.bfloat16").max_exact_integer
    256
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mixprec.errors import UnknownNameError

__all__ = [
    "BF16",
    "FORMATS",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "FP32",
    "TF32",
    "FloatFormat",
    "Specials",
    "find_format",
]


class Specials(str, enum.Enum):
    """Which values of a format are not finite."""

    INF_AND_NAN = "inf and NaN"
    """IEEE 754: the top exponent holds infinities and NaNs, and what is too large becomes an infinity."""

    NAN_ONLY = "NaN only"
    """OCP `fn` formats: the top exponent holds numbers but for one NaN, and what is too large becomes the maximum."""


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with subnormals and signed zeros.

    `mantissa_bits` are the stored ones: one more is implied. `aliases` are other names for it, PyTorch's among them.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    specials: Specials
    aliases: tuple[str, ...]
    source: str

    @property
    def bits(self) -> int:
        """Bits that carry information: sign, exponent and stored mantissa (19 for tf32)."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory: the next power of two (4 for tf32, which is float32 in memory)."""
        return 1 << ((self.bits + 7) // 8 - 1).bit_length()

    @property
    def has_infinities(self) -> bool:
        """Whether infinities exist; where not, what is too large becomes the maximum."""
        return self.specials is Specials.INF_AND_NAN

    @property
    def bias(self) -> int:
        """What the stored exponent exceeds the true one by."""
        return int(2 ** (self.exponent_bits - 1)) - 1

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, which all subnormals share."""
        return 1 - self.bias

    @property
    def max_exponent(self) -> int:
        """Exponent of the largest finite number."""
        return self.bias if self.has_infinities else self.bias + 1

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger number."""
        return 2.0**-self.mantissa_bits

    @property
    def max(self) -> float:
        """The largest finite number."""
        all_ones = 2.0 - self.eps
        largest = all_ones if self.has_infinities else all_ones - self.eps  # in `fn` formats all ones is the NaN
        return math.ldexp(largest, self.max_exponent)

    @property
    def tiny(self) -> float:
        """The smallest positive normal number: below it precision falls bit by bit."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number."""
        return math.ldexp(self.eps, self.min_exponent)

    @property
    def overflow_threshold(self) -> float:
        """Half a step above `max`: from here on a magnitude is too large for the format, below it rounds to `max`."""
        return self.max + math.ldexp(self.eps, self.max_exponent) / 2.0

    @property
    def underflow_threshold(self) -> float:
        """Half of the smallest subnormal: the largest magnitude that rounds to zero."""
        return self.smallest_subnormal / 2.0

    @property
    def max_exact_integer(self) -> int:
        """The last integer of the unbroken run 0, 1, 2, …: adding 1 to it changes nothing."""
        return int(2 ** (self.mantissa_bits + 1))

    def round(self, x: float) -> float:
        """`x` in this format, rounded once to nearest, ties to even, as a Python float.

        Too large becomes an infinity; where the format has none, `max`, also for an infinite `x` (PyTorch from 2.12;
        it was NaN before: https://github.com/pytorch/pytorch/pull/178817). NaN and the sign of zero are kept. PyTorch
        converts float64 to a 16- or 8-bit format through float32 and so rounds twice; for what float32 can hold the
        results are the same.
        """
        if math.isnan(x):
            return x
        if abs(x) >= self.overflow_threshold:
            return math.copysign(math.inf if self.has_infinities else self.max, x)
        quantum = self._quantum_exponent(x)
        return math.copysign(math.ldexp(float(round(math.ldexp(x, -quantum))), quantum), x)

    def spacing(self, x: float) -> float:
        """Distance from `round(x)` to the next number of larger magnitude; NaN where `round(x)` is not finite.

        At `max` it is the spacing below it.
        """
        value = self.round(x)
        return math.ldexp(1.0, self._quantum_exponent(value)) if math.isfinite(value) else math.nan

    def _quantum_exponent(self, x: float) -> int:
        """Exponent of the distance between neighbours around a finite `x`."""
        exponent = math.frexp(x)[1] - 1 if x else self.min_exponent
        return max(exponent, self.min_exponent) - self.mantissa_bits


_IEEE = "https://en.wikipedia.org/wiki/IEEE_754"
_OCP = "https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1"
_TF32 = "https://blogs.nvidia.com/blog/tensorfloat-32-precision-format/"
_BF16 = "https://cloud.google.com/tpu/docs/bfloat16"

FP32 = FloatFormat("fp32", 8, 23, Specials.INF_AND_NAN, ("float32", "float", "single"), _IEEE)
TF32 = FloatFormat("tf32", 8, 10, Specials.INF_AND_NAN, ("tensorfloat32", "tfloat32"), _TF32)
BF16 = FloatFormat("bf16", 8, 7, Specials.INF_AND_NAN, ("bfloat16",), _BF16)
FP16 = FloatFormat("fp16", 5, 10, Specials.INF_AND_NAN, ("float16", "half"), _IEEE)
FP8_E4M3 = FloatFormat("fp8_e4m3", 4, 3, Specials.NAN_ONLY, ("float8_e4m3fn", "fp8_e4m3fn", "e4m3", "e4m3fn"), _OCP)
FP8_E5M2 = FloatFormat("fp8_e5m2", 5, 2, Specials.INF_AND_NAN, ("float8_e5m2", "e5m2"), _OCP)

_ROWS = (FP32, TF32, BF16, FP16, FP8_E4M3, FP8_E5M2)

FORMATS: Mapping[str, FloatFormat] = MappingProxyType({row.name: row for row in _ROWS})
"""Every format by its name, from the widest to the narrowest."""

_BY_ANY_NAME = {name: row for row in _ROWS for name in (row.name, *row.aliases)}


def find_format(name: object) -> FloatFormat:
    """The format called `name`: ours ("fp16"), PyTorch's ("float16", "half", "torch.float16") or a torch dtype.

    Raises: UnknownNameError with the closest known names.
    """
    key = str(name).removeprefix("torch.").lower()
    if key not in _BY_ANY_NAME:
        raise UnknownNameError("format", str(name), _BY_ANY_NAME)
    return _BY_ANY_NAME[key]
