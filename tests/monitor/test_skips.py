"""Whether a skipped step is benign is decided by what has paid for it."""

from __future__ import annotations

import math

import pytest

from mixprec._loss_scale import Rules, advance, initial
from mixprec.monitor._skips import START, judge


def verdicts(steps) -> list[bool | None]:
    """Benign or not, for (skipped, event, scale, loss) of each step; None where it was not skipped."""
    budget, found = START, []
    for step in steps:
        budget, verdict = judge(budget, *step)
        found.append(None if verdict is None else verdict.benign)
    return found


CLEAN, GROWN = (False, "hold", 65536.0, 1.0), (False, "grow", 65536.0, 1.0)


def test_coming_down_from_the_first_scale_is_search():
    """From 2^24 down to 2^7 in the first steps every skip is benign; at 2^6 and below none is."""
    steps = [(True, "back_off", 2.0**e, 1.0) for e in range(24, 0, -1)]

    assert verdicts(steps) == [True] * 18 + [False] * 6


def test_a_growth_pays_for_one_skip():
    """After the search, the first skip since a growth is benign, the second is not."""
    late = [CLEAN] * 300

    assert verdicts([*late, GROWN, (True, "back_off", 131072.0, 1.0), (True, "back_off", 65536.0, 1.0)])[-2:] == [
        True,
        False,
    ]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_never_benign(loss):
    """Not even in the first step, where a finite loss would make it search."""
    assert verdicts([(True, "back_off", 65536.0, loss)]) == [False]
    assert verdicts([(True, "back_off", 65536.0, 1.0)]) == [True]


def test_without_a_scale_nothing_is_search():
    """At a scale of 1 gradients overflow by themselves."""
    assert verdicts([(True, "tolerate", 1.0, 1.0)]) == [False]


def test_one_overflow_in_a_long_run_needs_no_explanation():
    """After 2000 clean steps a single skip is benign; after 500 it is not."""
    assert verdicts([*[CLEAN] * 2000, (True, "back_off", 65536.0, 1.0)])[-1] is True
    assert verdicts([*[CLEAN] * 500, (True, "back_off", 65536.0, 1.0)])[-1] is False


def test_a_sound_model_never_has_an_unexplained_skip():
    """Under torch's rules, gradients that fit below 2^15 forever: all skips in 20,000 steps are benign."""
    rules, state, budget = Rules(growth_interval=500), initial(Rules(growth_interval=500)), START
    for _ in range(20_000):
        skipped, scale = state.scale > 2.0**15, state.scale
        state, event = advance(rules, state, skipped)
        budget, verdict = judge(budget, skipped, event.value, scale, 1.0)
        assert verdict is None or verdict.benign
