"""Ranks that share parameters decide alike: what one of them found, all of them know before any of them acts."""

from __future__ import annotations

from mixprec._agreement._agreement import Agreement, Alone
from mixprec._agreement._choose import WORLD, Agreements, Grouping, agreement_for
from mixprec._agreement._ranks import Ranks
from mixprec._agreement._same import OnDisagreement, settle

__all__ = [
    "WORLD",
    "Agreement",
    "Agreements",
    "Alone",
    "Grouping",
    "OnDisagreement",
    "Ranks",
    "agreement_for",
    "settle",
]
