"""The weighted mean over a window, as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._precision._window import Window, correction, next_micro_batch, share, with_weight
from mixprec.errors import InvalidValueError, MisuseError

QUICK = settings(max_examples=200, deadline=None, derandomize=True)


def run(length: int, weights: list[float | None], total: float | None = None) -> tuple[list[float], float]:
    """What each micro-batch's gradient is multiplied by, and the correction at the end."""
    window, shares = Window(length), []
    for index, weight in enumerate(weights):
        window = with_weight(window, weight, total)
        shares.append(share(window))
        if index < len(weights) - 1:
            window = next_micro_batch(window)
    return shares, correction(window)


@QUICK
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8), st.integers(0, 5))
def test_each_micro_batch_counts_by_its_weight(weights, missing):
    """share · correction is w / Σw, in full and in partial windows, whatever the unit of the weights."""
    shares, factor = run(len(weights) + missing, list(weights))
    for weight, portion in zip(weights, shares, strict=True):
        assert portion * factor == pytest.approx(weight / sum(weights), rel=1e-12)


@QUICK
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8), st.integers(0, 5))
def test_a_known_total_needs_no_correction(weights, missing):
    """With the total known up front the shares are w / total at once, and nothing is multiplied at the end."""
    total = sum(weights)
    shares, factor = run(len(weights) + missing, list(weights), total)
    assert factor == 1.0
    assert shares == [weight / total for weight in weights]


@QUICK
@given(st.integers(1, 64), st.integers(1, 10_000))
def test_equal_weights_cost_nothing(length, weight):
    """A full window of equal whole weights is divided by its length exactly and needs no correction."""
    shares, factor = run(length, [weight] * length)
    assert factor == 1.0
    assert shares == [1.0 / length] * length
    assert run(length, [None] * length) == (shares, 1.0)


def test_losses_of_one_micro_batch_share_its_weight():
    """A second loss before step() adds no weight, and one of another weight is refused."""
    once = with_weight(Window(2), 3, None)
    assert with_weight(once, 3, None) == once
    with pytest.raises(MisuseError, match=r"second loss of one micro-batch has weight 4, the first had 3"):
        with_weight(once, 4, None)


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "3"])
def test_a_weight_is_a_positive_number(weight):
    """Zero, negative, non-finite and textual weights are refused with what to do; the smallest positive one is not."""
    with pytest.raises(InvalidValueError, match=r"weight is .*; accepted is a positive finite number.*leave it out"):
        with_weight(Window(2), weight, None)
    assert with_weight(Window(2), 1e-9, None).first == 1e-9


def test_weights_are_given_to_all_or_to_none():
    """Mixing is refused, in either order."""
    second = next_micro_batch(with_weight(Window(2), 3, None))
    with pytest.raises(MisuseError, match="with and without weight meet in one accumulation window"):
        with_weight(second, None, None)
    with pytest.raises(MisuseError, match="with and without weight"):
        with_weight(next_micro_batch(with_weight(Window(2), None, None)), 3, None)
    assert with_weight(second, 1, None).weight_sum == 4


def test_a_total_belongs_to_weights_and_stays():
    """A total without weight, or one that changes within the window, is refused."""
    with pytest.raises(InvalidValueError, match=r"weight is None; accepted is a positive number where total is given"):
        with_weight(Window(2), None, 8)
    second = next_micro_batch(with_weight(Window(2), 3, 8))
    with pytest.raises(MisuseError, match=r"total is 9 and was 8 earlier in this window"):
        with_weight(second, 5, 9)
    assert share(with_weight(second, 5, 8)) == 5 / 8


def test_a_window_begins_again_after_its_last_micro_batch():
    """The state after `length` micro-batches is that of an empty window."""
    window = Window(2)
    for _ in range(2):
        assert not window.empty or window == Window(2)
        window = next_micro_batch(with_weight(window, None, None))
    assert window == Window(2)
