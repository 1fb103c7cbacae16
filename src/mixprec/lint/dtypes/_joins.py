"""Where the run decides between two values, only what both have in common is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mixprec.lint.dtypes._values import NUMBER, UNKNOWN, Choice, Items, Table, Tensor, Value, number_of, options

__all__ = ["element", "join", "joined", "table"]

_MOST_OPTIONS = 5


def join(first: Value | None, second: Value | None) -> Value:
    """What either can be. A value that does not exist yet on one way is the other's."""
    if first is None or second is None:
        return first or second or UNKNOWN
    if first is second or first == second:
        return first
    if first is UNKNOWN or second is UNKNOWN:
        return UNKNOWN
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _join_tensors(first, second)
    if isinstance(first, Items) and isinstance(second, Items):
        return _join_items(first, second)
    if isinstance(first, Table) and isinstance(second, Table):
        return _join_tables(first, second)
    if NUMBER in (first, second) and all(v is NUMBER or number_of(v) is not None for v in (first, second)):
        return NUMBER
    return _choose((*options(first), *options(second)))


def _choose(values: tuple[Value, ...]) -> Value:
    different: list[Value] = []
    for value in values:
        if isinstance(value, Tensor):
            merged = next((v for v in different if isinstance(v, Tensor)), None)
            if merged is not None:
                different[different.index(merged)] = _join_tensors(merged, value)
                continue
        if value not in different:
            different.append(value)
    if len(different) == 1:
        return different[0]
    return UNKNOWN if len(different) > _MOST_OPTIONS else Choice(tuple(different))


def _join_tensors(first: Tensor, second: Tensor) -> Tensor:
    dtypes = None if first.dtypes is None or second.dtypes is None else first.dtypes | second.dtypes
    return Tensor(
        dtypes,
        first.bounds.hull(second.bounds),
        first.rank0 if first.rank0 == second.rank0 else None,
        first.tags & second.tags,
        first.constant if first.constant == second.constant else None,
        first.shape if first.shape == second.shape else None,
        why=first.why or second.why,
        origin=first.origin if first.origin is second.origin else None,
    )


def _join_items(first: Items, second: Items) -> Items:
    owner = first.owner if first.owner == second.owner else None
    if first.items is not None and second.items is not None and len(first.items) == len(second.items):
        return Items(tuple(join(a, b) for a, b in zip(first.items, second.items, strict=True)), owner=owner)
    if () in (first.items, second.items):
        return Items(None, element(second if first.items == () else first), owner)
    return Items(None, join(element(first), element(second)), owner)


def element(items: Items) -> Value:
    """Any one of the items."""
    if items.items is None:
        return items.element
    if not items.items:
        return UNKNOWN
    value: Value = items.items[0]
    for other in items.items[1:]:
        value = join(value, other)
    return value


def _join_tables(first: Table, second: Table) -> Value:
    if not first.items and not second.items:
        return Table((), second.element if first.element is None else join(first.element, second.element))
    if [key for key, _ in first.items] != [key for key, _ in second.items]:
        return UNKNOWN
    return Table(tuple((key, join(value, second.get(key))) for key, value in first.items))


def table(items: Mapping[Any, Value]) -> Table:
    """A dict as a value."""
    return Table(tuple(items.items()))


def joined(values: Iterable[Value]) -> Value:
    """What any of the values can be; UNKNOWN where there is none."""
    found: Value | None = None
    for value in values:
        found = value if found is None else join(found, value)
    return UNKNOWN if found is None else found
