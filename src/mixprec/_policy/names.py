"""An op has one name here, PyTorch's own without namespace or overload; every Python spelling leads to it.

`softmax`, `F.softmax`, `torch.nn.functional.softmax`, `torch.Tensor.softmax`, `torch.softmax`, `aten::softmax.int`
are one op. An overload is part of a name only where PyTorch treats overloads differently (`_convolution.deprecated`).
Ops of other libraries are named with their namespace (`mylib::norm`) and are not checked.
"""

from __future__ import annotations

import functools

from mixprec._policy.spellings import ALIASES, NOT_OPS, PREFIXES, TAKES_DTYPE, UNLISTED
from mixprec._policy.tables import DEVICES
from mixprec.errors import InvalidValueError, UnknownNameError

__all__ = ["KNOWN", "known_op", "op_of", "takes_dtype"]

KNOWN: frozenset[str] = UNLISTED.union(*(group.ops.split() for groups in DEVICES.values() for group in groups))
"""Every op name that a rule can be given for, besides the namespaced ones of other libraries."""


@functools.lru_cache(maxsize=4096)
def op_of(spelling: str) -> str | None:
    """The op that `spelling` (for example from `torch.overrides.resolve_name`) calls; None where it is none we know.

    In-place and `out=` forms are None: PyTorch's autocast does not touch them and neither does a policy.
    """
    if spelling in NOT_OPS:
        return None
    name = _without_prefix(spelling)
    if "::" in name:
        return name if name.rpartition("::")[2] else None
    for candidate in (name, name.partition(".")[0]):
        if candidate in ALIASES:
            return ALIASES[candidate]
        if candidate in KNOWN:
            return candidate
    return None


def known_op(name: str) -> str:
    """The op named, in any spelling. Raises `UnknownNameError` with suggestions."""
    if not isinstance(name, str):
        raise InvalidValueError("op", name, "the name of an op, such as 'softmax' or 'F.softmax'")
    op = op_of(name.strip())
    if op is None:
        raise UnknownNameError("op", name.strip(), KNOWN | set(ALIASES), _advice(name.strip()))
    if any(c.isspace() or c in "#" for c in op):
        raise InvalidValueError("op", name, "a name without spaces and '#'")
    return op


def takes_dtype(op: str) -> bool:
    """Whether the op has an optional `dtype=` for its result, so that `FP32_OUT` can be its rule."""
    return op in TAKES_DTYPE


def _without_prefix(spelling: str) -> str:
    for prefix, instead in PREFIXES:
        if spelling.startswith(prefix) and len(spelling) > len(prefix):
            return instead + spelling[len(prefix) :]
    return spelling


def _advice(name: str) -> str:
    outer = op_of(name.rstrip("_")) if name.endswith("_") else None
    if outer:
        return f"In-place forms are never cast; a rule can be given for {outer!r}."
    return "Ops of other libraries are named with their namespace, as 'mylib::op'."
