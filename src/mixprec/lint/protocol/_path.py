"""A path is one way through the program so far: what its names hold, what it assumed, where the protocol stands.

Paths fork where a test is open and join where nothing that matters tells them apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mixprec.lint._constants import Dtype
from mixprec.lint.protocol._conditions import Literals
from mixprec.lint.protocol._values import (
    Class,
    Const,
    Context,
    Function,
    Instance,
    Items,
    Logic,
    Opaque,
    Optimizer,
    Region,
    Scaler,
    Scheduler,
    Table,
    Value,
)

__all__ = ["EVERY", "NONE", "Gradients", "Happening", "Loops", "Part", "Path", "Protocol", "Stage", "join"]

K = TypeVar("K")

Loops = tuple[tuple[int, int], ...]
"""The loops around a place with the iteration that runs: (identity of the loop, 0 or 1), from the outside in."""

EVERY = ""
"""The key of the gradients of optimizers that have not been seen yet."""


@dataclass(frozen=True)
class Part:
    """What one backward pass added to gradients.

    `scaler`: whose scale it carries, None for none. `old`: that scale has been updated since. `used`: the step that
    consumed it. `unscaled`: divided by the scale again. `unsure`: the loss may have carried a scale. `shared`:
    several optimizers were there, so it may belong to another one. `region`: the region its loss was made in.
    """

    node: ast.AST
    scaler: str | None
    old: bool = False
    used: ast.AST | None = None
    unscaled: bool = False
    unsure: bool = False
    shared: bool = False
    region: Region | None = None
    loops: Loops = ()


@dataclass(frozen=True)
class Gradients:
    """What an optimizer's gradients hold.

    `unknown`: something that was not seen may be in there. `cleared`: the call that emptied them last, None before
    any. `dropped`: what that call threw away unused.
    """

    parts: frozenset[Part] = frozenset()
    unknown: bool = False
    cleared: ast.AST | None = None
    dropped: frozenset[Part] = frozenset()

    @property
    def fresh(self) -> frozenset[Part]:
        """What no step has consumed."""
        return frozenset(part for part in self.parts if part.used is None)

    @property
    def scaled(self) -> frozenset[Part]:
        """What is fresh and still multiplied by a scale."""
        return frozenset(part for part in self.fresh if part.scaler is not None and not part.unscaled)

    def each(self, **change: object) -> Gradients:
        """Every part changed."""
        return replace(self, parts=frozenset(replace(part, **change) for part in self.parts))  # type: ignore[arg-type]  # keyword names are Part's fields


NOTHING = Gradients()
"""The gradients of an optimizer that nothing has happened to."""


@dataclass(frozen=True)
class Stage:
    """Where an optimizer stands with a scaler since its last update: `unscaled`, `stepped` or `unknown`.

    `cleared`: its gradients were emptied since. `halved`: the first of two half-steps (SAM) was taken.
    """

    name: str
    node: ast.AST
    loops: Loops
    cleared: bool = False
    halved: bool = False


@dataclass(frozen=True)
class Protocol:
    """Where a scaler stands.

    `version` counts updates. `scaled`: it has scaled something. `unknown`: calls that were not seen may have come
    before. `updated`: the last update, `settled`: the optimizers whose steps it followed. `spent`: no backward has been
    seen since it, so whatever gradients there are carry the scale of before.
    """

    version: int = 0
    scaled: bool = False
    unknown: bool = False
    updated: ast.AST | None = None
    settled: tuple[str, ...] = ()
    spent: bool = False
    stages: tuple[tuple[str, Stage], ...] = ()

    def stage(self, optimizer: str) -> Stage | None:
        """Where `optimizer` stands; None when ready."""
        return dict(self.stages).get(optimizer)

    def at(self, optimizer: str, stage: Stage) -> Protocol:
        """The same with `optimizer` at `stage`."""
        return replace(self, stages=tuple(sorted({**dict(self.stages), optimizer: stage}.items(), key=lambda e: e[0])))


@dataclass(frozen=True)
class Happening:
    """An event that later ones ask about: `step`, `update` or `schedule` of `subject`."""

    kind: str
    subject: str
    node: ast.AST
    loops: Loops
    scaler: str | None = None


_NEVER = frozenset({Function, Class, Logic})
"""Kinds of values that never tell paths apart."""

NONE = Const(None)
"""What a function returns that returns nothing."""


@dataclass
class Path:
    """One way through the program. Mutable while it runs; `fork` makes an independent copy."""

    env: dict[tuple[int, str], Value] = field(default_factory=dict)
    heap: dict[tuple[str, str], Value] = field(default_factory=dict)
    scalers: dict[str, Protocol] = field(default_factory=dict)
    known_scalers: dict[str, Scaler] = field(default_factory=dict)
    optimizers: dict[str, Optimizer] = field(default_factory=dict)
    gradients: dict[str, Gradients] = field(default_factory=lambda: {EVERY: Gradients()})
    contexts: tuple[Region | Context, ...] = ()
    loops: Loops = ()
    literals: Literals = field(default_factory=dict)
    log: tuple[Happening, ...] = ()
    chain: tuple[int, ...] = (0,)
    exit: str | None = None
    result: Value = NONE
    expanded: dict[ast.AST, Value] = field(default_factory=dict)

    def fork(self) -> Path:
        """An independent copy."""
        return Path(
            dict(self.env),
            dict(self.heap),
            dict(self.scalers),
            dict(self.known_scalers),
            dict(self.optimizers),
            dict(self.gradients),
            self.contexts,
            self.loops,
            self.literals,
            self.log,
            self.chain,
            self.exit,
            self.result,
            dict(self.expanded),
        )

    def signature(self, tested: frozenset[str]) -> tuple[object, ...]:
        """What tells this path from another; values without meaning for the protocol do not.

        Truth values, None and strings count where their name is in `tested`. Optimizers that nothing has happened to
        count as one, whichever branch made them.
        """
        return (
            frozenset(self.scalers.items()),
            frozenset((key, value) for key, value in self.gradients.items() if value != NOTHING or key == EVERY),
            self.contexts,
            self.loops,
            self.log,
            self.exit,
            self._essence("", self.result, tested),
            self._notable(self.env, tested),
            self._notable(self.heap, tested),
        )

    def _notable(self, store: Mapping[Any, Value], tested: frozenset[str]) -> frozenset[tuple[object, object]]:
        found: list[tuple[object, object]] = []
        for slot, value in store.items():
            kind = type(value)
            if kind is Opaque:
                if value.notable:  # type: ignore[union-attr]  # its exact type was just asked for; this loop is hot
                    found.append((slot, value))
            elif kind not in _NEVER:
                essence = self._essence(slot[1], value, tested)
                if essence is not None:
                    found.append((slot, essence))
        return frozenset(found)

    def _essence(self, name: str, value: Value, tested: frozenset[str]) -> object:
        """What counts about `value` under `name`; None where nothing does."""
        if isinstance(value, Opaque):
            return None if value.plain else value
        if isinstance(value, Const):
            if isinstance(value.value, Dtype):
                return value
            return value if name in tested and isinstance(value.value, (bool, str, type(None))) else None
        if isinstance(value, Optimizer):
            untouched = value.made is not None and self.gradients.get(value.key, NOTHING) == NOTHING
            return ("optimizer", value.kind == "LBFGS", value.params, value.loops) if untouched else value
        if isinstance(value, Scheduler):
            return "scheduler"
        if isinstance(value, (Items, Table)):
            items = value.items if isinstance(value, Items) else tuple(item for _, item in value.items)
            inside = tuple(self._essence("", item, tested) for item in items)
            return inside if any(inside) else None
        if isinstance(value, Instance):
            return value.cls.node if name in tested else None
        return None if isinstance(value, (Function, Class, Logic)) else value

    @property
    def token(self) -> str:
        """The name of the iteration that runs, for keys of what it makes."""
        return "".join(f"@{loop % 100_003}.{index}" for loop, index in self.loops)


def join(paths: Iterable[Path], tested: frozenset[str]) -> list[Path]:
    """The paths with those made one that nothing which matters tells apart; they keep what they agree on."""
    every = list(paths)
    if len(every) < 2:
        return every
    groups: dict[tuple[object, ...], list[Path]] = {}
    for path in every:
        groups.setdefault(path.signature(tested), []).append(path)
    return [group[0] if len(group) == 1 else _joined(group) for group in groups.values()]


def _joined(group: list[Path]) -> Path:
    first = group[0]
    for other in group[1:]:
        first.literals = {
            key: literal
            for key, literal in first.literals.items()
            if key in other.literals and other.literals[key].value is literal.value
        }
        first.env = _agreed(first.env, other.env)
        first.heap = _agreed(first.heap, other.heap)
        first.known_scalers.update(other.known_scalers)
        first.optimizers.update(other.optimizers)
        if first.result != other.result:
            first.result = _either(first.result, other.result)
    return first


def _agreed(left: dict[K, Value], right: dict[K, Value]) -> dict[K, Value]:
    both = {}
    for slot, value in left.items():
        other = right.get(slot)
        if other is not None:
            both[slot] = value if value is other or value == other or _alike(value, other) else _either(value, other)
    return both


def _alike(left: Value, right: Value) -> bool:
    """Optimizers and schedulers that joined paths did not tell apart: the first stands for both."""
    return type(left) is type(right) and isinstance(left, (Optimizer, Scheduler, Instance))


def _either(left: Value, right: Value) -> Opaque:
    volatile = any(isinstance(value, Opaque) and value.volatile for value in (left, right))
    return Opaque(f"either{hash((left.key, right.key)):x}", volatile=volatile)
