"""Every path that reaches an event signs for it, with the faults that it saw there; only then can "always" be said."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mixprec.lint.protocol._conditions import Formula, Literals

__all__ = ["Context", "Fault", "Ledger", "Sighting"]

Context = tuple[object, ...]
"""Which calls led to a place, and which iterations run there."""


@dataclass(frozen=True)
class Fault:
    """One breach of the protocol on one path.

    `kind` names it, `anchor` is the node to point at, `names` are texts for the message (`scaler`, `optimizer`, …).
    `enabled` is the condition under which the scaler concerned is enabled, None where it does not matter.
    `outside`: what it concerns came as an argument that only the caller knows.
    """

    kind: str
    anchor: ast.AST
    names: tuple[tuple[str, str], ...] = ()
    enabled: Formula | None = field(default=None, compare=False)
    outside: bool = field(default=False, compare=False)
    others: tuple[ast.AST, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Sighting:
    """One path at one event: what it assumed so far and what is wrong there."""

    literals: Literals
    faults: tuple[Fault, ...]


@dataclass
class Ledger:
    """What every path saw, by event and context; and every event node that any path reached."""

    sightings: dict[tuple[ast.AST, Context], list[Sighting]] = field(default_factory=dict)
    reached: set[ast.AST] = field(default_factory=set)

    def sign(self, node: ast.AST, context: Context, literals: Literals, faults: list[Fault]) -> None:
        """A path reached `node` and saw `faults`, or none."""
        self.reached.add(node)
        self.sightings.setdefault((node, context), []).append(Sighting(literals, tuple(faults)))
