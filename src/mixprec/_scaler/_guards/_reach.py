"""Which parameters a loss reaches is written in its graph; it is walked for the first backward passes only."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mixprec._scaler._guards._marks import Mark, mark, untouched

WALKS = 2
"""Backward passes whose graph is walked. Whoever steps an optimizer directly does it from the start."""


class Reached:
    """The parameters whose gradients the last scaled backward pass wrote, with their marks after it."""

    def __init__(self) -> None:
        self._walks = WALKS
        self._roots: list[Any] = []
        self._before: list[tuple[Tensor, Mark]] = []
        self._after: dict[int, Mark] = {}

    def expect(self, root: Any) -> None:
        """A backward pass may start at the node `root`. Holds on to its graph until the next pass has ended."""
        if self._walks > 0:
            self._roots.append(root)

    def started(self) -> None:
        """As a pass begins. Cost: about 1 µs a node, in the first passes of a scaler's life."""
        self._before = [(param, mark(param)) for param in leaves(self._roots)]

    def ended(self) -> None:
        """As it ends."""
        self._after = {id(p): now for p, then in self._before if not untouched(then, now := mark(p))}
        self._walks -= 1 if self._before else 0
        self._before, self._roots = [], []

    def forget(self) -> None:
        """After an update: the gradients may have been used."""
        self._after = {}

    def holds(self, param: Tensor) -> bool:
        """Whether the gradient of `param` is what the last scaled backward pass left there."""
        then = self._after.get(id(param))
        return then is not None and then[0] is not None and untouched(then, mark(param))


def leaves(roots: list[Any]) -> list[Tensor]:
    """The parameters at the ends of the graphs of `roots`, which are nodes (`grad_fn`)."""
    found: list[Tensor] = []
    seen: set[Any] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor) and variable.is_leaf:
            found.append(variable)
        waiting.extend(following for following, _ in node.next_functions)
    return found
