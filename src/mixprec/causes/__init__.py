"""The catalogue: one file per cause of failure, one code per cause, whoever finds it.

A file `mpNNN_name.py` defines `CAUSE = Cause(...)`. Files are found by scanning; nothing is registered by hand.
"""

from __future__ import annotations

from mixprec.causes._catalogue import all_causes, cause_names, find_cause
from mixprec.causes._cause import Cause, Where

__all__ = ["Cause", "Where", "all_causes", "cause_names", "find_cause"]
