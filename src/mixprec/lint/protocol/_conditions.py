"""A condition is a formula over atoms; one path gives each atom one truth, wherever it is asked.

An atom is a test that the text alone does not decide. Atoms with equal keys are the same test of the same values:
a flag keeps its truth for the whole run, a volatile one within an iteration. Whole tests that only hold volatile
atoms (`(i + 1) % n == 0 or i + 1 == len(loader)`) are decided as one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = [
    "FALSE",
    "TRUE",
    "Atom",
    "Both",
    "Either",
    "Formula",
    "Literal",
    "Not",
    "Truth",
    "atoms",
    "decide",
    "suppose",
]


@dataclass(frozen=True)
class Truth:
    """A condition that is decided."""

    value: bool


@dataclass(frozen=True)
class Atom:
    """A test that is open.

    `key` identifies it, `text` is how the source writes it. `volatile`: it may differ between iterations. `window`:
    it looks like the guard of an accumulation window. `about_scale`: it asks whether a step was skipped. `equals`:
    it holds when the value of that key equals that constant, so at most one of those atoms is true. `bases`: the loop
    variables that it asks about. `where` and `loops`: in which call and iteration it was asked.
    """

    key: str
    text: str = field(compare=False, default="")
    volatile: bool = field(compare=False, default=False)
    window: bool = field(compare=False, default=False)
    about_scale: bool = field(compare=False, default=False)
    equals: tuple[str, str] | None = field(compare=False, default=None)
    node: ast.AST | None = field(compare=False, default=None)
    bases: frozenset[str] = field(compare=False, default=frozenset())
    where: tuple[object, ...] = field(compare=False, default=())
    loops: tuple[object, ...] = field(compare=False, default=())

    def asked_in(self, where: tuple[object, ...], loops: tuple[object, ...]) -> bool:
        """Whether it was asked in what still runs: this call and iteration, or those around them."""
        return where[: len(self.where)] == self.where and loops[: len(self.loops)] == self.loops


@dataclass(frozen=True)
class Not:
    """The contrary."""

    inner: Formula


@dataclass(frozen=True)
class Both:
    """All of several."""

    parts: tuple[Formula, ...]
    text: str = field(compare=False, default="")


@dataclass(frozen=True)
class Either:
    """At least one of several."""

    parts: tuple[Formula, ...]
    text: str = field(compare=False, default="")


Formula = Truth | Atom | Not | Both | Either
TRUE, FALSE = Truth(True), Truth(False)


@dataclass(frozen=True)
class Literal:
    """What a path assumes about an atom. Literals of one `decision` were fixed together."""

    atom: Atom
    value: bool
    decision: int


Literals = Mapping[str, Literal]


def atoms(formula: Formula) -> Iterator[Atom]:
    """The atoms of `formula`, left to right."""
    if isinstance(formula, Atom):
        yield formula
    elif isinstance(formula, Not):
        yield from atoms(formula.inner)
    elif isinstance(formula, (Both, Either)):
        for part in formula.parts:
            yield from atoms(part)


def decide(formula: Formula, literals: Literals) -> bool | None:
    """The truth of `formula` under `literals`; None where they leave it open."""
    if isinstance(formula, Truth):
        return formula.value
    if isinstance(formula, Atom):
        return _decide_atom(formula, literals)
    if isinstance(formula, Not):
        inner = decide(formula.inner, literals)
        return None if inner is None else not inner
    whole = literals.get(_key(formula))
    if whole is not None:
        return whole.value
    deciding = isinstance(formula, Either)
    values = [decide(part, literals) for part in formula.parts]
    if deciding in values:
        return deciding
    return None if None in values else not deciding


def _decide_atom(atom: Atom, literals: Literals) -> bool | None:
    known = literals.get(atom.key)
    if known is not None:
        return known.value
    if atom.equals is not None:
        base, constant = atom.equals
        for other in literals.values():
            if other.value and other.atom.equals is not None and other.atom.equals[0] == base:
                return other.atom.equals[1] == constant
    return None


def suppose(formula: Formula, value: bool, literals: Literals, decision: int) -> list[Literals]:
    """Every way in which `formula` can be `value` given `literals`, as extended literals; empty where it cannot."""
    known = decide(formula, literals)
    if known is not None:
        return [literals] if known is value else []
    if isinstance(formula, Atom):
        return [{**literals, formula.key: Literal(formula, value, decision)}]
    if isinstance(formula, Not):
        return suppose(formula.inner, not value, literals, decision)
    assert isinstance(formula, (Both, Either))
    if all(atom.volatile for atom in atoms(formula)):
        return [_whole(formula, value, literals, decision)]
    if isinstance(formula, Both) is value:
        return _every(formula.parts, value, literals, decision)
    return _first(formula.parts, value, literals, decision)


def _every(parts: tuple[Formula, ...], value: bool, literals: Literals, decision: int) -> list[Literals]:
    found = [literals]
    for part in parts:
        found = [further for one in found for further in suppose(part, value, one, decision)]
    return found


def _first(parts: tuple[Formula, ...], value: bool, literals: Literals, decision: int) -> list[Literals]:
    """The ways in which some part is `value`, told apart by the first one that is."""
    found: list[Literals] = []
    rest = [literals]
    for part in parts:
        found += [further for one in rest for further in suppose(part, value, one, decision)]
        rest = [further for one in rest for further in suppose(part, not value, one, decision)]
    return found


def _whole(formula: Both | Either, value: bool, literals: Literals, decision: int) -> Literals:
    """A compound test taken as one atom; where its value fixes its parts, they are fixed with it."""
    inside = list(atoms(formula))
    atom = Atom(
        _key(formula),
        formula.text or " and ".join(a.text for a in inside),
        volatile=True,
        window=any(a.window for a in inside),
        about_scale=any(a.about_scale for a in inside),
        node=inside[0].node,
        bases=frozenset().union(*(a.bases for a in inside)),
        where=inside[0].where,
        loops=inside[0].loops,
    )
    extended = {**literals, atom.key: Literal(atom, value, decision)}
    if isinstance(formula, Both) is value:
        for part in formula.parts:
            extended = dict(next(iter(suppose(part, value, extended, decision)), extended))
    return extended


def _key(formula: Formula) -> str:
    if isinstance(formula, Truth):
        return str(formula.value)
    if isinstance(formula, Atom):
        return formula.key
    if isinstance(formula, Not):
        return f"not({_key(formula.inner)})"
    word = "and" if isinstance(formula, Both) else "or"
    return f"{word}({','.join(_key(part) for part in formula.parts)})"
