"""A rule about order only puts into words what the walk concluded."""

from __future__ import annotations

import abc
import ast
from collections.abc import Iterator
from typing import ClassVar

from mixprec.lint._rule import Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol._conclude import Conclusion
from mixprec.lint.protocol._facts import facts, last_name
from mixprec.lint.protocol._trace import trace
from mixprec.records import Finding, Location, Severity

__all__ = ["OrderRule", "Pair", "call_statement", "pair", "receiver", "same_block"]


_GRAVITY = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class OrderRule(Rule):
    """A rule for some `kinds` of faults."""

    kinds: ClassVar[tuple[str, ...]]

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place, the gravest, for the conclusions that this rule accepts."""
        found: dict[Location, Finding] = {}
        for conclusion in view.memo(trace).of(*self.kinds):
            if conclusion.again and not self.also_again(view, conclusion):
                continue
            finding = self.describe(view, conclusion)
            if finding is None:
                continue
            other = found.get(finding.location)
            if other is None or _GRAVITY[finding.severity] > _GRAVITY[other.severity]:
                found[finding.location] = finding
        yield from found.values()

    def also_again(self, view: FileView, conclusion: Conclusion) -> bool:
        """Whether to say what only a second call of the function shows. Something out of sight may put it right."""
        return False

    @abc.abstractmethod
    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The finding for `conclusion`; None where this rule does not say it."""


class Pair:
    """How a function writes its scaler and its optimizer: the texts in `scaler.step(optimizer)`."""

    def __init__(self, scaler: str, optimizer: str, steps: list[ast.Call]) -> None:
        self.scaler = scaler
        self.optimizer = optimizer
        self.steps = steps


def pair(view: FileView, node: ast.AST) -> Pair | None:
    """The one scaler and one optimizer of the function around `node`; None where there are none or several."""
    known = view.memo(facts)
    scope = view.function(node)
    found: dict[tuple[str, str], list[ast.Call]] = {}
    for call in view.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "step" or not call.args:
            continue
        if known.is_scaler(last_name(func.value)) and view.function(call) is scope:
            found.setdefault((view.text(func.value), view.text(call.args[0])), []).append(call)
    if len(found) != 1:
        return None
    ((scaler, optimizer), steps) = next(iter(found.items()))
    return Pair(scaler, optimizer, steps)


def receiver(view: FileView, call: ast.AST) -> str:
    """The text of what a method is called on: `scaler` of `scaler.step(optimizer)`."""
    func = call.func if isinstance(call, ast.Call) else None
    return view.text(func.value) if isinstance(func, ast.Attribute) else ""


def call_statement(view: FileView, node: ast.AST) -> ast.stmt | None:
    """The statement that is this call and nothing else, perhaps with its value kept in a name."""
    stmt = view.statement(node)
    if isinstance(stmt, ast.Expr) and stmt.value is node:
        return stmt
    return stmt if isinstance(stmt, ast.Assign) and stmt.value is node else None


def same_block(view: FileView, left: ast.AST, right: ast.AST) -> bool:
    """Whether two nodes stand in statements of one block, so that both run or neither does."""
    return view.parent(view.statement(left)) is view.parent(view.statement(right)) and view.block(
        view.statement(left)
    ) is view.block(view.statement(right))
