"""A skipped step is benign as long as something has paid for it: the search for the first scale, or a scale that grew.

A loss scale starts high and comes down, and it grows until a step overflows: both cost steps, and neither is a fault.
Every growth pays for one skip, and the search in the beginning for as many as lead down to a scale of 2^6. A loss that
is not finite is never benign: the scale is multiplied in after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mixprec._loss_scale import Event

__all__ = ["START", "SkipBudget", "SkipVerdict", "judge"]

SEARCH_STEPS = 200
"""Steps within which the first scale is still being searched for."""

SEARCH_FLOOR = 64.0
"""A scale that gradients of a sound model fit: coming down to here is search."""

LIKELY = 2000
"""Clean steps after which one overflow needs no explanation; PyTorch's growth interval."""


@dataclass(frozen=True)
class SkipBudget:
    """`paid` growths that no skip has used up, `clean` steps since the last skip, `steps` since the beginning."""

    steps: int = 0
    clean: int = 0
    paid: int = 0


START = SkipBudget()


@dataclass(frozen=True)
class SkipVerdict:
    """Whether a skipped step is part of how loss scaling works, and why."""

    benign: bool
    why: str


def judge(
    budget: SkipBudget, skipped: bool, event: str | None, scale: float | None, loss: float | None
) -> tuple[SkipBudget, SkipVerdict | None]:
    """The budget after a step, and the verdict where it was skipped. `loss` None: not known, taken as finite."""
    if skipped:
        return _skipped(budget, scale, loss is None or math.isfinite(loss))
    paid = budget.paid + (event == Event.GROW.value)
    return SkipBudget(budget.steps + 1, budget.clean + 1, paid), None


def _skipped(budget: SkipBudget, scale: float | None, finite_loss: bool) -> tuple[SkipBudget, SkipVerdict]:
    after = replace(budget, steps=budget.steps + 1, clean=0)
    if not finite_loss:
        return after, SkipVerdict(False, "the loss itself was not finite, and the scale is multiplied in after it")
    if scale is None or scale <= 1.0:
        return after, SkipVerdict(False, "gradients were not finite without being scaled")
    if budget.steps < SEARCH_STEPS and scale > SEARCH_FLOOR:
        return after, SkipVerdict(True, "warm-up: the scale starts high and comes down to what gradients fit")
    if budget.paid:
        return replace(after, paid=budget.paid - 1), SkipVerdict(True, "growth probe: the scale had grown before it")
    if budget.clean >= LIKELY:
        return after, SkipVerdict(True, f"one overflow after {budget.clean} clean steps")
    return after, SkipVerdict(False, "the scale had not grown since the last overflow, so the gradients did")
