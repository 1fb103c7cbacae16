"""What is computed from values carries their taints: the scale, the region, the cut from the graph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mixprec.lint.protocol._values import (
    Const,
    Opaque,
    Value,
)

if TYPE_CHECKING:
    pass

__all__ = ["combined", "is_number", "short", "without_graph"]

_LONGEST = 160


def short(key: str) -> str:
    """`key`, or its digest where it has grown long."""
    return key if len(key) <= _LONGEST else key[:40] + hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def is_number(value: Value) -> bool:
    """Whether `value` is a number that is known, and no truth value."""
    return isinstance(value, Const) and isinstance(value.value, (int, float)) and not isinstance(value.value, bool)


def combined(key: str, values: Iterable[Value], volatile: bool = False) -> Opaque:
    """Something computed from `values`: their taints together."""
    result = Opaque(short(key), volatile)
    opaque = [value for value in values if isinstance(value, Opaque)]
    if not opaque:
        return result
    marks = [value.mark for value in opaque if value.mark is not None]
    regions = [value.region for value in opaque if value.region is not None]
    return replace(
        result,
        volatile=volatile or any(value.volatile for value in opaque),
        mark=marks[0] if marks else None,
        unsure=any(value.unsure for value in opaque),
        number=any(value.number for value in opaque),
        region=regions[0] if regions else None,
        divisors=frozenset().union(*(value.divisors for value in opaque)),
        cut=opaque[0].cut if all(value.cut for value in opaque) else None,
        gradient=any(value.gradient for value in opaque),
        outside=all(value.outside for value in opaque),
        bases=frozenset().union(*(value.bases for value in opaque)),
    )


def without_graph(result: Opaque, values: Iterable[Value]) -> Opaque:
    """`result`, an operator's or a plain function's, with what follows from no value of `values` having a graph."""
    every = list(values)
    opaque = [value for value in every if isinstance(value, Opaque)]
    known = all(value.cut is not None or value.data for value in opaque)
    if not opaque or not known or any(not isinstance(value, (Opaque, Const)) for value in every):
        return replace(result, cut=None, data=False)
    cut = next((value.cut for value in opaque if value.cut is not None), None)
    return replace(result, cut=cut, data=cut is None)
