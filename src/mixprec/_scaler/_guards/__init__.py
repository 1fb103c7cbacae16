"""Misuse of a scaler that torch's does not see is known from marks on a few small gradients, at no cost to the rest."""

from __future__ import annotations

from mixprec._scaler._guards._direct_steps import taken_by_scaler
from mixprec._scaler._guards._guard import DEFAULT_GUARDS, Guard, guards_from
from mixprec._scaler._guards._watch import Watch

__all__ = ["DEFAULT_GUARDS", "Guard", "Watch", "guards_from", "taken_by_scaler"]
