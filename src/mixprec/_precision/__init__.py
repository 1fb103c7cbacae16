"""The front door: one object that trains right in the precision that the hardware is good at, and says what it did."""

from __future__ import annotations

from mixprec._precision._front import Precision

__all__ = ["Precision"]
