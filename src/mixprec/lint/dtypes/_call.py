"""One call of an op: its name as Python says it, its arguments as values, and the region that it runs in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mixprec.lint._constants import Dtype
from mixprec.lint.dtypes._dtypes import Dtypes
from mixprec.lint.dtypes._region import Region
from mixprec.lint.dtypes._values import UNKNOWN, Choice, Const, Items, Tensor, Value, number_of, options

__all__ = ["Call", "as_tensor", "dtype_value", "dtypes_of"]


@dataclass(frozen=True)
class Call:
    """`name` without namespace and without the underscore of an in-place form. The receiver of a method comes first."""

    name: str
    node: ast.AST
    region: Region
    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    inplace: bool = False

    def get(self, place: int, name: str, default: Value | None = None) -> Value | None:
        """The argument at `place` or called `name`."""
        if name in self.keywords:
            return self.keywords[name]
        return self.args[place] if place < len(self.args) else default

    def tensor(self, place: int = 0, name: str = "input") -> Tensor | None:
        """The argument there, where it is a tensor."""
        return as_tensor(self.get(place, name))

    def number(self, place: int, name: str) -> float | None:
        """The argument there, where it is a known Python number."""
        value = self.get(place, name)
        return None if value is None else number_of(value)

    def operands(self) -> tuple[Tensor | None, ...]:
        """Every argument that is or may be a tensor; None for one that may be anything."""
        return tuple(_operands((*self.args, *self.keywords.values())))

    @property
    def dtype(self) -> Dtypes:
        """The argument `dtype=`; None where it is not given or open."""
        return dtypes_of(self.keywords.get("dtype"))

    @property
    def line(self) -> int:
        """Where it stands."""
        return int(getattr(self.node, "lineno", 0))


def _operands(values: tuple[Value, ...]) -> Iterator[Tensor | None]:
    for value in values:
        if isinstance(value, Items):
            yield from _operands(value.items if value.items is not None else (value.element,))
        elif isinstance(value, Tensor):
            yield value
        elif isinstance(value, Choice) and any(isinstance(option, Tensor) for option in value.values):
            yield as_tensor(value)
        elif value is UNKNOWN:
            yield None


def as_tensor(value: Value | None) -> Tensor | None:
    """`value` as a tensor: itself, or what is common to the tensors among a choice of tensors and None."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Choice):
        others = [option for option in options(value) if not (isinstance(option, Const) and option.value is None)]
        if len(others) == 1 and isinstance(others[0], Tensor):
            return others[0]
    return None


def dtypes_of(value: Value | None) -> Dtypes:
    """The dtypes that `value` names; None where it names none."""
    if value is None:
        return None
    named = [option.value.name for option in options(value) if isinstance(option, Const) and _is_dtype(option)]
    return frozenset(named) if named and len(named) == len(options(value)) else None


def _is_dtype(value: Const) -> bool:
    return isinstance(value.value, Dtype)


def dtype_value(dtypes: Dtypes) -> Value:
    """`tensor.dtype` as a value."""
    if dtypes is None:
        return UNKNOWN
    values = tuple(Const(Dtype(name)) for name in sorted(dtypes))
    return values[0] if len(values) == 1 else Choice(values)
