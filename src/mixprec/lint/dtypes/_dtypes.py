"""What a tensor's dtype can be is a set of names; None is any. Promotion is PyTorch's, with what is open left open."""

from __future__ import annotations

from mixprec.formats import BF16, FP16, FP32, FloatFormat

__all__ = [
    "FLOAT32",
    "FLOATS",
    "FORMATS",
    "INTEGERS",
    "LOW",
    "Dtypes",
    "is_low",
    "one",
    "promote",
    "promote_with_number",
    "union",
]

Dtypes = frozenset[str] | None

LOW = frozenset({"float16", "bfloat16"})
FLOAT32 = frozenset({"float32"})
INTEGERS = frozenset({"uint8", "int8", "int16", "int32", "int64"})
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
FORMATS: dict[str, FloatFormat] = {"float16": FP16, "bfloat16": BF16, "float32": FP32}
"""The formats of the dtypes whose limits a rule may ask for."""

_CATEGORY = {"bool": 0, **dict.fromkeys(INTEGERS, 1), **dict.fromkeys(FLOATS, 2), "complex64": 3, "complex128": 3}
_WIDTH = {"bool": 1, "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "bfloat16": 1, "float16": 1}
_WIDTH |= {"float32": 2, "float64": 3, "complex64": 2, "complex128": 3}


def one(name: str) -> Dtypes:
    """The set of one dtype."""
    return frozenset({name})


def is_low(dtypes: Dtypes) -> bool:
    """Whether every dtype that is possible has 16 bits."""
    return dtypes is not None and dtypes <= LOW


def union(first: Dtypes, second: Dtypes) -> Dtypes:
    """What either can be."""
    return None if first is None or second is None else first | second


def promote(first: Dtypes, second: Dtypes, rank0: tuple[bool | None, bool | None] = (False, False)) -> Dtypes:
    """The dtype of an elementwise result. `rank0` says which operand is a 0-dim tensor; None where that is open.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    if first is None or second is None:
        return None
    return frozenset(name for a in first for b in second for name in _promoted(a, b, rank0))


def _promoted(first: str, second: str, rank0: tuple[bool | None, bool | None]) -> frozenset[str]:
    if first == second:
        return frozenset({first})
    kinds = _CATEGORY.get(first), _CATEGORY.get(second)
    if kinds[0] is None or kinds[1] is None:
        return frozenset({first, second})
    if kinds[0] != kinds[1]:
        return frozenset({first if kinds[0] > kinds[1] else second})
    widest = _widest(first, second)
    if None in rank0:
        return frozenset({first, second, widest})
    if rank0[0] != rank0[1]:
        return frozenset({second if rank0[0] else first})
    return frozenset({widest})


def _widest(first: str, second: str) -> str:
    if {first, second} == LOW:
        return "float32"
    return first if _WIDTH[first] >= _WIDTH[second] else second


def promote_with_number(dtypes: Dtypes, number: object) -> Dtypes:
    """The dtype of a tensor combined with a Python number; a float lifts integers to the default dtype, float32."""
    if dtypes is None or not isinstance(number, float):
        return dtypes
    return frozenset("float32" if _CATEGORY.get(name, 2) < 2 else name for name in dtypes)
