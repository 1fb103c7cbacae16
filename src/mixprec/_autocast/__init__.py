"""An autocast region is PyTorch's own region plus, where a policy differs from PyTorch's lists, that difference."""

from __future__ import annotations

from mixprec._autocast._cache import CastCache, CastStatistics
from mixprec._autocast._region import autocast, interpret

__all__ = ["CastCache", "CastStatistics", "autocast", "interpret"]
