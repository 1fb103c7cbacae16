"""The bytes that a program moves are counted op by op as PyTorch runs it, not estimated from what it is meant to do.

Every op reads its tensor arguments and writes its results and the arguments that its schema marks as written. That is
what memory sees where no tensor outlives an op in a cache, so it is a bound from above for small tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_NOT_READ = frozenset({"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"})
"""Ops that overwrite what they write to without reading it."""


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        result = func(*args, **kwargs)
        self.moved += _moved(func, args, kwargs, result)
        return result


def bytes_moved(program: Callable[[], object]) -> int:
    """Bytes read and written by the ops of one call of `program`."""
    counter = _Counter()
    with counter:
        program()
    return counter.moved


def _moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    schema = func._schema
    name = schema.name.partition("::")[2]
    aliases = [returned.alias_info for returned in schema.returns]
    if any(alias is not None and not alias.is_write for alias in aliases) or name.startswith("empty"):
        return 0  # a view, or memory that nobody has written to
    moved = 0
    for place, argument in enumerate(schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        written = argument.alias_info is not None and argument.alias_info.is_write
        if name.startswith("_fused_") and argument.name == "grads":
            written = kwargs.get("grad_scale") is not None  # the kernel writes them back only if it divides them
        read = not (written and name in _NOT_READ)
        moved += (read + written) * _size(value)
    new = [part for part, alias in zip(_listed(result, len(aliases)), aliases, strict=True) if alias is None]
    return moved + _size(new)


def _listed(result: Any, returns: int) -> list[Any]:
    return [result] if returns == 1 else list(result or ())


def _size(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
