"""A trained model becomes a 16-bit one for inference that keeps in float32 what must stay there, and says how close."""

from __future__ import annotations

from mixprec._convert._convert import convert
from mixprec._convert._converted import Converted
from mixprec._convert._parity import ModuleParity, OutputParity, Parity
from mixprec._convert._survival import Survival, survival

__all__ = ["Converted", "ModuleParity", "OutputParity", "Parity", "Survival", "convert", "survival"]
