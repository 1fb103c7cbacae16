"""A frame holds the values of names in one scope; a name that it lacks is its parent's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mixprec.lint.dtypes._joins import join
from mixprec.lint.dtypes._values import Value

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["Frame"]


class Frame:
    """One scope of one file while it runs. `node`: the module, function or class whose scope it is."""

    __slots__ = ("exits", "node", "parent", "results", "values", "view", "yields")

    def __init__(self, view: FileView, node: ast.AST, parent: Frame | None = None) -> None:
        self.view = view
        self.node = node
        self.parent = parent
        self.values: dict[str, Value] = {}
        self.results: list[Value] = []
        self.yields: list[Value] = []
        self.exits: list[dict[str, Value]] = []

    def find(self, name: str) -> Value | None:
        """The value of `name` here or in a scope around it; class bodies are not around their methods."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values and (frame is self or not isinstance(frame.node, ast.ClassDef)):
                return frame.values[name]
            frame = frame.parent
        return None

    def holder(self, name: str) -> Frame | None:
        """The frame in which `find` finds `name`."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                return frame
            frame = frame.parent
        return None

    def merge(self, *others: dict[str, Value]) -> None:
        """Go on with what any of these ways through the code left: `values` become their join."""
        merged: dict[str, Value] = {}
        for values in others:
            for name, value in values.items():
                merged[name] = join(merged.get(name), value)
        self.values = merged
