"""The autograd graph under some tensors, as far as it is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

__all__ = ["nodes_under"]


def nodes_under(outputs: Sequence[Tensor], reach: int) -> Iterator[Any]:
    """Every node once, from the top; of a graph with more than about `reach` nodes the first of them."""
    nodes: dict[Any, None] = dict.fromkeys(tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None)
    pending = list(nodes)
    for node in pending:
        yield node
        if len(nodes) < reach:
            fresh = dict.fromkeys(after for after, _ in node.next_functions if after is not None and after not in nodes)
            nodes.update(fresh)
            pending += fresh
