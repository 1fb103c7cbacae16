"""Code that cannot be edited gets mixprec's scaler and autocast under PyTorch's names, and gets PyTorch's back."""

from __future__ import annotations

from mixprec._patch._patch import Patch, patch

__all__ = ["Patch", "patch"]
