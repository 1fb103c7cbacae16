"""What is there all the time: weights, masters, state, compensation and buffers."""

from __future__ import annotations

from typing import NamedTuple

from mixprec.audit._log import Kind, width
from mixprec.audit._simulate._reading import Reading, elements
from mixprec.audit._simulate._ways import SMALL_STATE, Precision

__all__ = ["Fixed", "fixed"]


class Fixed(NamedTuple):
    """Bytes."""

    weights: int
    masters: int
    state: int
    extra: int
    buffers: int


def fixed(reading: Reading, precision: Precision) -> Fixed:
    """What `precision` keeps for the model and the optimizer of the step."""
    held = reading.step.held
    weights = {h.ref.storage: elements(h) for h in held if h.kind is Kind.WEIGHT}
    trained = reading.trained()
    return Fixed(
        weights=sum(weights.values()) * width(precision.weights),
        masters=4 * trained if precision.masters else 0,
        state=_state(reading, precision),
        extra=precision.extra * trained,
        buffers=sum({h.ref.storage: h.ref.bytes for h in held if h.kind is Kind.BUFFER}.values()),
    )


def _state(reading: Reading, precision: Precision) -> int:
    state = 0.0
    for held in reading.step.held:
        compensation = held.name.endswith(".compensation") and held.ref.dtype == "int16"  # of KahanSum: `extra`
        if held.kind is Kind.STATE and not compensation:
            count = elements(held)
            small = precision.state < 2 and count < SMALL_STATE
            known = width(held.ref.dtype) if width(held.ref.dtype) and held.ref.shape else 0
            state += count * (4.0 if small else precision.state) if known else held.ref.bytes
    return round(state)
