"""What one call is given: the values of its arguments, and where it stands."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._values import UNKNOWN, Value

__all__ = ["Given"]


@dataclass(frozen=True)
class Given:
    """Arguments by place and by name, the call's node, and the frame that it is evaluated in."""

    node: ast.AST
    frame: Frame
    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)

    def get(self, place: int, name: str = "", default: Value = UNKNOWN) -> Value:
        """The argument called `name`, else the one at `place`."""
        if name in self.keywords:
            return self.keywords[name]
        return self.args[place] if place < len(self.args) else default

    def named(self, *names: str) -> dict[str, Value]:
        """All arguments by name, `names` being those of the places."""
        return {**dict(zip(names, self.args, strict=False)), **self.keywords}

    def with_args(self, *args: Value, **keywords: Value) -> Given:
        """The same call with other arguments."""
        return replace(self, args=args, keywords=keywords)

    @property
    def line(self) -> int:
        """Where the call stands."""
        return int(getattr(self.node, "lineno", 0))
