"""An op has one name here, PyTorch's own without namespace or overload; every Python spelling leads to it.

`softmax`, `F.softmax`, `torch.nn.functional.softmax`, `torch.Tensor.softmax`, `torch.softmax`, `aten::softmax.int`
are one op. An overload is part of a name only where PyTorch treats overloads differently (`_convolution.deprecated`).
Ops of other libraries are named with their namespace (`mylib::norm`) and are not checked.
"""

from __future__ import annotations

__all__ = ["KNOWN", "known_op", "op_of", "takes_dtype"]

KNOWN: frozenset[str] = frozenset()
"""Every op name that a rule can be given for."""


def op_of(spelling: str) -> str | None:
    """The op that `spelling` (for example from `torch.overrides.resolve_name`) calls; None where it is none we know.

    In-place and `out=` forms are None: PyTorch's autocast does not touch them and neither does a policy.
    """
    raise NotImplementedError


def known_op(name: str) -> str:
    """The op named, in any spelling. Raises `UnknownNameError` with suggestions."""
    raise NotImplementedError


def takes_dtype(op: str) -> bool:
    """Whether the op has an optional `dtype=` for its result, so that `FP32_OUT` can be its rule."""
    raise NotImplementedError
