"""A path's assumptions decide tests as logic does, and forking at a test loses and doubles nothing."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.lint.protocol._conditions import (
    Atom,
    Both,
    Either,
    Literal,
    Not,
    Truth,
    atoms,
    decide,
    suppose,
)

FLAGS = tuple(Atom(name, name) for name in "abcd")
VOLATILE = tuple(Atom(name, name, volatile=True) for name in "wxyz")


def formulas(leaves):
    return st.recursive(
        st.sampled_from(leaves) | st.booleans().map(Truth),
        lambda inner: (
            inner.map(Not)
            | st.lists(inner, min_size=1, max_size=3).map(lambda parts: Both(tuple(parts)))
            | st.lists(inner, min_size=1, max_size=3).map(lambda parts: Either(tuple(parts)))
        ),
        max_leaves=6,
    )


def evaluated(formula, world):
    """What logic says: the specification."""
    if isinstance(formula, Truth):
        return formula.value
    if isinstance(formula, Atom):
        return world[formula.key]
    if isinstance(formula, Not):
        return not evaluated(formula.inner, world)
    parts = [evaluated(part, world) for part in formula.parts]
    return all(parts) if isinstance(formula, Both) else any(parts)


def worlds(leaves):
    for values in itertools.product((True, False), repeat=len(leaves)):
        yield {atom.key: value for atom, value in zip(leaves, values, strict=True)}


def literals(world):
    return {atom.key: Literal(atom, world[atom.key], 0) for atom in FLAGS}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(formulas(FLAGS))
def test_full_assumptions_decide_as_logic_does(formula):
    """With every atom assumed, a formula has the truth that logic gives it."""
    for world in worlds(FLAGS):
        assert decide(formula, literals(world)) is evaluated(formula, world)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(formulas(FLAGS))
def test_forking_covers_every_world_once(formula):
    """The ways to be true and the ways to be false are disjoint and leave no world out."""
    ways = [(value, way) for value in (True, False) for way in suppose(formula, value, {}, 1)]
    for world in worlds(FLAGS):
        fitting = [(value, way) for value, way in ways if all(world[key] is one.value for key, one in way.items())]

        assert [value for value, _ in fitting] == [evaluated(formula, world)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(formulas(FLAGS + VOLATILE), st.booleans())
def test_what_was_supposed_is_decided(formula, value):
    """After a fork the same test takes the same side again."""
    for way in suppose(formula, value, {}, 1):
        assert decide(formula, way) is value


@settings(max_examples=100, deadline=None, derandomize=True)
@given(formulas(VOLATILE), st.booleans())
def test_a_volatile_test_is_one_decision(formula, value):
    """However many questions a test of an iteration asks, a path takes it in one step."""
    ways = suppose(formula, value, {}, 7)

    assert len(ways) <= 1
    assert all(literal.decision == 7 for way in ways for literal in way.values())


def test_values_of_one_option_exclude_each_other():
    """`dtype == "fp16"` being true makes `dtype == "bf16"` false, and leaves another option open."""
    fp16, bf16, other = (
        Atom(f"{base}=={value}", equals=(base, value)) for base, value in (("d", "fp16"), ("d", "bf16"), ("e", "bf16"))
    )
    (chosen,) = suppose(fp16, True, {}, 1)

    assert decide(bf16, chosen) is False
    assert decide(other, chosen) is None
    assert suppose(bf16, True, chosen, 2) == []


def test_an_assumption_that_is_contradicted_has_no_way():
    """A path that assumed a test cannot assume its contrary."""
    (yes,) = suppose(FLAGS[0], True, {}, 1)

    assert suppose(Not(FLAGS[0]), True, yes, 2) == []
    assert suppose(Not(FLAGS[0]), False, yes, 2) == [yes]


def test_atoms_come_in_order():
    """The questions of a test, left to right."""
    a, b, c, _ = FLAGS

    assert list(atoms(Either((Both((a, Not(b))), c)))) == [a, b, c]
