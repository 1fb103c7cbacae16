"""Which expressions have 16 bits, and where: a walk through a file that follows dtypes instead of values."""

from __future__ import annotations

from mixprec.lint.dtypes._dtypes import FORMATS, INTEGERS, LOW
from mixprec.lint.dtypes._layers import each_parameter, parameters
from mixprec.lint.dtypes._library import CHANGES
from mixprec.lint.dtypes._region import rule_of
from mixprec.lint.dtypes._state import Event
from mixprec.lint.dtypes._trace import Hit, Trace, happened, held, traces
from mixprec.lint.dtypes._values import (
    Autocast,
    Const,
    Instance,
    Items,
    Known,
    Optimizer,
    Scaler,
    Tag,
    Tensor,
    Value,
    Wrapped,
    number_of,
)
from mixprec.lint.dtypes._words import dtype_words, number_words, short, spoken
from mixprec.lint.dtypes.ops._moves import SOURCES

__all__ = [
    "CHANGES",
    "FORMATS",
    "INTEGERS",
    "LOW",
    "SOURCES",
    "Autocast",
    "Const",
    "Event",
    "Hit",
    "Instance",
    "Items",
    "Known",
    "Optimizer",
    "Scaler",
    "Tag",
    "Tensor",
    "Trace",
    "Value",
    "Wrapped",
    "dtype_words",
    "each_parameter",
    "happened",
    "held",
    "number_of",
    "number_words",
    "parameters",
    "rule_of",
    "short",
    "spoken",
    "traces",
]
