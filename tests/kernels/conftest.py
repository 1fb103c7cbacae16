"""Kernels are run by Triton's interpreter in a process of their own, since the choice is made as they are imported."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]
"""`test_interpreter.py` starts the process that collects this folder."""
