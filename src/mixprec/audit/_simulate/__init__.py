"""What a recorded step would take in another precision, computed from the record alone."""

from mixprec.audit._simulate._simulate import Simulated, simulate
from mixprec.audit._simulate._ways import Precision, each_precision
from mixprec.audit._simulate._work import Work

__all__ = ["Precision", "Simulated", "Work", "each_precision", "simulate"]
