"""A window's gradient is the weighted mean of its micro-batches' gradients, however many and however unequal they are.

Each loss is the mean over its micro-batch. A micro-batch of weight w contributes w / (r·n) of its gradient, where n is
the window's length and r the weight of its first micro-batch, so that the sum stays as large as one micro-batch's
gradient whatever the unit of the weights. When the window ends, n·r / Σw turns that sum into Σ(w·g) / Σw. The factor is
exactly 1, and nothing is multiplied, when the window is full and the weights are equal, or when the total was known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real

from mixprec.errors import InvalidValueError, MisuseError

__all__ = ["Window", "correction", "next_micro_batch", "share", "with_weight", "without_current"]


@dataclass(frozen=True)
class Window:
    """Where an accumulation window stands: `length` micro-batches, `done` of them finished.

    `current` is the weight of the micro-batch that is being computed, None before its first backward. `first` is the
    weight of the window's first micro-batch and `weight_sum` that of all so far, the current one included. `weighted`
    says whether the user gives weights, `total` is their sum where it was known up front. `dropped` is the weight of
    micro-batches that were left out again.
    """

    length: int
    done: int = 0
    first: float = 1.0
    weight_sum: float = 0.0
    current: float | None = None
    weighted: bool = False
    total: float | None = None
    dropped: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether no gradient has been contributed yet."""
        return self.done == 0 and self.current is None

    @property
    def last(self) -> bool:
        """Whether the current micro-batch is the one that completes the window."""
        return self.done + 1 >= self.length


def with_weight(window: Window, weight: float | None, total: float | None) -> Window:
    """`window` once a loss of this weight is added; every loss of one micro-batch has the same weight.

    Raises `InvalidValueError` for a weight or total that is not a positive finite number, `MisuseError` where losses
    with and without weight, or different totals, meet in one window.
    """
    _check_positive("weight", weight, "An empty micro-batch has no mean: leave it out.")
    _check_positive("total", total, "It is the sum of the weights in the window.")
    if total is not None and weight is None:
        raise InvalidValueError("weight", None, "a positive number where total is given", "Pass weight=len(inputs).")
    value = 1.0 if weight is None else float(weight)
    if window.empty:
        return replace(window, first=value, weight_sum=value, current=value, weighted=weight is not None, total=total)
    _check_same(window, weight, total)
    if window.current is None:
        return replace(window, weight_sum=window.weight_sum + value, current=value)
    if window.current != value:
        raise MisuseError(
            "MP203",
            "weight",
            f"A second loss of one micro-batch has weight {value:g}, the first had {window.current:g}. All losses "
            "between two calls of step() belong to one micro-batch and share its weight.",
        )
    return window


def share(window: Window) -> float:
    """What the loss of the current micro-batch is multiplied by."""
    assert window.current is not None
    return window.current / (window.first * window.length if window.total is None else window.total)


def correction(window: Window) -> float:
    """What the summed gradients are multiplied by when the window ends; exactly 1.0 where nothing is to be done."""
    if window.weight_sum == 0.0:
        return 1.0
    if window.total is not None:
        return window.total / (window.total - window.dropped)
    return window.length * window.first / window.weight_sum


def without_current(window: Window) -> Window:
    """`window` after the current micro-batch, the only one that is not in it yet, was left out of the sum."""
    assert window.current is not None
    weight = window.current
    return replace(window, weight_sum=window.weight_sum - weight, dropped=window.dropped + weight)


def next_micro_batch(window: Window) -> Window:
    """`window` after the current micro-batch is finished; a new window after the last."""
    return Window(window.length) if window.last else replace(window, done=window.done + 1, current=None)


def _check_positive(name: str, value: object, advice: str) -> None:
    if value is not None and not (isinstance(value, Real) and math.isfinite(value) and float(value) > 0):
        raise InvalidValueError(name, value, "a positive finite number, such as a count of samples", advice)


def _check_same(window: Window, weight: float | None, total: float | None) -> None:
    if window.weighted != (weight is not None):
        raise MisuseError(
            "MP203",
            "weight",
            "Losses with and without weight meet in one accumulation window, so their mean is not defined. Give every "
            "micro-batch its weight=, or none.",
        )
    if window.total != total:
        raise MisuseError(
            "MP203",
            "total",
            f"total is {total} and was {window.total} earlier in this window. Give the same throughout.",
        )
