"""A fault counts where it can be said when it happens: on every path, or exactly when some test has one outcome.

The paths that reached an event in one context are compared: those that saw the fault against those that did not. What
tells them apart must be a conjunction of at most two flags and one test that changes between iterations; where it
takes more, the paths may contradict each other in ways that are not understood here, and nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mixprec.lint.protocol._conditions import Both, Either, Formula, Literal, Not, Truth, atoms
from mixprec.lint.protocol._ledger import Fault, Ledger, Sighting

__all__ = ["Conclusion", "Condition", "conclude"]

MOST_FLAGS = 2


@dataclass(frozen=True)
class Condition:
    """Under which outcome of a test a fault happens. `volatile`, `window`: see Atom; `node` is the test."""

    text: str
    value: bool
    volatile: bool
    window: bool
    node: ast.AST | None

    def __str__(self) -> str:
        what, raises, name = self.text.partition(" raises ")
        if raises:
            return f"when `{what}` raises {name}" if self.value else f"when `{what}` does not raise {name}"
        return f"when `{self.text}` is {'true' if self.value else 'false'}"


@dataclass(frozen=True)
class Conclusion:
    """A fault and when it happens.

    `always`: on every path there, whether or not the scaler is enabled. `again`: only when the function it is in is
    called a second time. `within`: the functions that were walked together with it.
    """

    fault: Fault
    conditions: tuple[Condition, ...]
    always: bool = True
    again: bool = False
    within: frozenset[ast.AST] = field(default=frozenset(), repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The kind of fault."""
        return self.fault.kind

    @property
    def when(self) -> str:
        """The conditions in words, with a leading space; empty when it always happens."""
        return "".join(f" {condition}" for condition in self.conditions[:1]) + "".join(
            f" and {str(condition)[5:]}" for condition in self.conditions[1:]
        )

    @property
    def changing(self) -> Condition | None:
        """The condition that changes between iterations."""
        return next((condition for condition in self.conditions if condition.volatile), None)


def conclude(ledger: Ledger, pseudo: int | None = None) -> Iterator[Conclusion]:
    """What `ledger` allows to say. `pseudo` is the loop that stands for being called again."""
    found: dict[Fault, Conclusion] = {}
    for (_, (_, loops)), sightings in ledger.sightings.items():
        again = pseudo is not None and (pseudo, 1) in loops  # type: ignore[operator]  # loops is a tuple of pairs
        for fault in {fault for sighting in sightings for fault in sighting.faults}:
            found_when = _conditions(fault, sightings)
            if found_when is None:
                continue
            new = Conclusion(fault, *found_when, again)
            if fault not in found or _rank(new) < _rank(found[fault]):
                found[fault] = new
    yield from found.values()


def _rank(conclusion: Conclusion) -> tuple[bool, int]:
    return conclusion.again, len(conclusion.conditions)


def _conditions(fault: Fault, sightings: list[Sighting]) -> tuple[tuple[Condition, ...], bool] | None:
    """The conditions of `fault`, and whether there are none but the scaler's own; None where they cannot be told."""
    seen = [sighting for sighting in sightings if fault in sighting.faults]
    rest = [sighting for sighting in sightings if fault not in sighting.faults]
    chosen = _telling_apart(seen, rest)
    if chosen is None:
        return None
    conditions = {_condition(literal) for literal in chosen}
    enabled = next((f.enabled for s in seen for f in s.faults if f == fault), None)
    conditions |= set(_enabled(enabled))
    ordered = sorted(conditions, key=lambda c: (c.volatile, c.text))
    changing = [literal for literal in chosen if literal.atom.volatile]
    if any(_entangled(literal, seen[0]) for literal in changing):
        return None
    if len({literal.decision for literal in changing}) > 1 or len(ordered) - len(changing) > MOST_FLAGS:
        return None
    return tuple(c for c in ordered if c.text), not chosen


def _entangled(literal: Literal, sighting: Sighting) -> bool:
    """Whether another test of the same loop variable was decided too: the two may exclude each other."""
    return any(
        other.decision != literal.decision and other.atom.bases & literal.atom.bases
        for other in sighting.literals.values()
        if other.atom.volatile
    )


def _telling_apart(seen: list[Sighting], rest: list[Sighting]) -> list[Literal] | None:
    """The fewest assumptions that all of `seen` share and each of `rest` contradicts; None where there are none."""
    common = {key: literal for key, literal in seen[0].literals.items() if _shared(key, literal, seen)}
    chosen: list[Literal] = []
    left = list(rest)
    while left:
        best = max(common.items(), key=lambda item: _excluded(item, left), default=None)
        if best is None or not _excluded(best, left)[0]:
            return None
        chosen.append(best[1])
        left = [sighting for sighting in left if not _contradicts(best, sighting)]
    return chosen


def _shared(key: str, literal: Literal, seen: Iterable[Sighting]) -> bool:
    return all(key in one.literals and one.literals[key].value is literal.value for one in seen)


def _contradicts(item: tuple[str, Literal], sighting: Sighting) -> bool:
    other = sighting.literals.get(item[0])
    return other is not None and other.value is not item[1].value


def _excluded(item: tuple[str, Literal], left: list[Sighting]) -> tuple[int, bool, bool]:
    """How many of `left` an assumption tells apart; of equals, flags are better, and what is true."""
    return sum(_contradicts(item, sighting) for sighting in left), not item[1].atom.volatile, item[1].value


def _condition(literal: Literal) -> Condition:
    atom = literal.atom
    text, value = atom.text, literal.value
    if text.startswith("not (") and text.endswith(")"):
        text, value = text[5:-1], not value
    return Condition(text, value, atom.volatile, atom.window, atom.node)


def _enabled(formula: Formula | None) -> Iterator[Condition]:
    """The flags under which a scaler or region is enabled, where its condition is that simple."""
    if formula is None or isinstance(formula, Truth):
        return
    if isinstance(formula, Not):
        for condition in _enabled(formula.inner):
            yield Condition(condition.text, not condition.value, condition.volatile, condition.window, condition.node)
        return
    if isinstance(formula, (Both, Either)):
        first = next(iter(atoms(formula)))
        yield Condition(formula.text, True, False, False, first.node)
        return
    yield Condition(*_plain(formula.text), False, False, formula.node)


def _plain(text: str) -> tuple[str, bool]:
    return (text[5:-1], False) if text.startswith("not (") and text.endswith(")") else (text, True)
