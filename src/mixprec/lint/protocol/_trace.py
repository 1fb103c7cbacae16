"""A file is walked from its roots: the module itself, then every function that nothing here calls.

A function outside any loop is taken to be called again and again, as training steps are; what only a second call
shows is said only where no call that could put it right is out of sight.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from mixprec.lint._owners import Owner
from mixprec.lint._view import FileView
from mixprec.lint.protocol._conclude import Conclusion, conclude
from mixprec.lint.protocol._facts import Def, facts
from mixprec.lint.protocol._ledger import Fault, Ledger
from mixprec.lint.protocol._machine import Machine
from mixprec.lint.protocol._path import Path
from mixprec.lint.protocol._values import Class, Instance
from mixprec.lint.protocol._walker import Overrun, Walker

__all__ = ["Trace", "trace"]

RESTING = frozenset(Owner)
"""Frameworks under which the order of scaler calls is not the script's."""

MOST_ROOTS = 60
MOST_STEPS = 30_000
"""Statements, times paths, that are walked in one file; beyond, what has been found so far stands."""


@dataclass(frozen=True)
class Trace:
    """What the walk of a file allows to say.

    `reached`: every call that some path carried out. `entered`: the module and every function that was walked.
    """

    conclusions: tuple[Conclusion, ...]
    reached: frozenset[ast.AST]
    entered: frozenset[ast.AST]

    def of(self, *kinds: str) -> list[Conclusion]:
        """The conclusions of these kinds, by place."""
        found = [c for c in self.conclusions if c.kind in kinds]
        return sorted(found, key=lambda c: (getattr(c.fault.anchor, "lineno", 0), c.kind))


def trace(view: FileView) -> Trace:
    """Walk `view`; use through `view.memo`. Nothing is said where a framework owns the step."""
    known = view.memo(facts)
    if not known.core or view.owners & RESTING:
        return Trace((), frozenset(), frozenset())
    conclusions: list[Conclusion] = []
    reached: set[ast.AST] = set()
    covered: set[ast.AST] = set()
    steps = 0
    for root in _roots(view):
        if root in covered or len(covered) > MOST_ROOTS or steps > MOST_STEPS:
            continue
        ledger, walker = _walked(view, root)
        steps, entered = steps + walker.steps, frozenset(walker.entered)
        covered |= entered
        reached |= ledger.reached
        pseudo = None if isinstance(root, ast.Module) else id(root)
        for conclusion in conclude(ledger, pseudo):
            moved = _moved(view, walker.machine.sites, conclusion.fault)
            if moved is not None:
                conclusions.append(replace(conclusion, fault=moved, within=entered))
    return Trace(tuple(conclusions), frozenset(reached), frozenset(covered))


def _moved(view: FileView, sites: dict[ast.AST, ast.AST], fault: Fault) -> Fault | None:
    """`fault` as seen from this file: what stands in another one is said where this one calls it."""
    anchor = fault.anchor if view.parent(fault.anchor) is not None else sites.get(fault.anchor)
    if anchor is None:
        return None
    others = (node if view.parent(node) is not None else sites.get(node) for node in fault.others)
    return replace(fault, anchor=anchor, others=tuple(node for node in others if node is not None))


def _roots(view: FileView) -> list[ast.Module | Def]:
    """The module, then functions that nothing calls, then the others: those are covered by then, as a rule."""
    known = view.memo(facts)
    functions = [node for several in known.functions.values() for node in several if node in known.hot]
    functions.sort(key=lambda node: (node.name in known.called, node.lineno))
    return [view.tree, *functions]


def _walked(view: FileView, root: ast.Module | Def) -> tuple[Ledger, Walker]:
    """Walk from `root`; again, knowing that there are several optimizers, when there turn out to be."""
    ledger, walker, optimizers = _attempt(view, root, several=False)
    if optimizers > 1:
        ledger, walker, _ = _attempt(view, root, several=True)
    return ledger, walker


def _attempt(view: FileView, root: ast.Module | Def, several: bool) -> tuple[Ledger, Walker, int]:
    machine = Machine(Ledger())
    machine.several = several
    walker = Walker(view, machine)
    walker.entered.add(root)
    try:
        paths = _start(walker, view, root)
    except (Overrun, RecursionError):
        walker.entered.clear()
        return Ledger(), walker, 0
    return machine.ledger, walker, max([walker.most_optimizers, *(len(path.optimizers) for path in paths)])


def _start(walker: Walker, view: FileView, root: ast.Module | Def) -> list[Path]:
    if isinstance(root, ast.Module):
        return walker.block(root.body, [Path()])
    paths = [Path(chain=(walker.new_frame(), 0))]
    walker.stack.append(root)
    walker.entered.add(root)
    for index in range(2):
        for path in paths:
            path.loops, path.log, path.exit = ((id(root), index),), (), None
            walker.begin(root, path, _own(view, root))
        paths = [path for path in walker.block(root.body, paths) if path.exit in (None, "return")]
    return paths


def _own(view: FileView, root: Def) -> Instance | None:
    cls = view.parent(root)
    if not isinstance(cls, ast.ClassDef):
        return None
    return Instance(f"self:{cls.name}", Class(cls, view, (0,)))
