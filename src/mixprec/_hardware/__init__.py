"""What a device computes natively, which mode follows from that, and how fast the common accelerators are on paper."""

from __future__ import annotations

from mixprec._hardware._accelerators import ACCELERATORS, Accelerator, accelerator_named, accelerator_of
from mixprec._hardware._choice import Recommendation, Traits, probe, recommend

__all__ = [
    "ACCELERATORS",
    "Accelerator",
    "Recommendation",
    "Traits",
    "accelerator_named",
    "accelerator_of",
    "probe",
    "recommend",
]
