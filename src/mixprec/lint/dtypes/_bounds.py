"""Between which two numbers a tensor's values lie, as far as the text says: enough to know that exp cannot overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ANY", "NOT_NEGATIVE", "UNIT", "Bounds"]

_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Bounds:
    """The closed interval from `low` to `high`; infinite where nothing is known."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def hull(self, other: Bounds) -> Bounds:
        """What either can be."""
        return Bounds(min(self.low, other.low), max(self.high, other.high))

    def clamp(self, low: float, high: float) -> Bounds:
        """After clamping to `low` and `high`."""
        return Bounds(min(max(self.low, low), high), max(min(self.high, high), low))

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Bounds:
        return Bounds(-self.high, -self.low)

    def __sub__(self, other: Bounds) -> Bounds:
        return self + -other

    def __mul__(self, other: Bounds) -> Bounds:
        corners = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Bounds(min(corners), max(corners))

    def __truediv__(self, other: Bounds) -> Bounds:
        if other.low <= 0.0 <= other.high:
            return NOT_NEGATIVE if self.low >= 0.0 and other.low >= 0.0 else ANY
        return self * Bounds(1.0 / other.high, 1.0 / other.low)

    def absolute(self) -> Bounds:
        """Of the magnitude."""
        nearest = 0.0 if self.low <= 0.0 <= self.high else min(abs(self.low), abs(self.high))
        return Bounds(nearest, self.magnitude)

    def squared(self) -> Bounds:
        """Of the square."""
        size = self.absolute()
        return Bounds(_product(size.low, size.low), _product(size.high, size.high))

    def exponential(self) -> Bounds:
        """Of e to this power."""
        return Bounds(_exp(self.low), _exp(self.high))

    def root(self) -> Bounds:
        """Of the square root."""
        return Bounds(math.sqrt(max(self.low, 0.0)), math.sqrt(max(self.high, 0.0)))


ANY = Bounds()
NOT_NEGATIVE = Bounds(0.0)
UNIT = Bounds(0.0, 1.0)


def _product(first: float, second: float) -> float:
    return 0.0 if first == 0.0 or second == 0.0 else first * second


def _exp(power: float) -> float:
    if power == -math.inf:
        return 0.0
    return math.inf if power > _LARGEST_EXPONENT else math.exp(power)
