"""An autocast region is PyTorch's own region plus, where a policy differs from PyTorch's lists, that difference."""

from __future__ import annotations

from mixprec._autocast._region import autocast

__all__ = ["autocast"]
