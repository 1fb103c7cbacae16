"""Lint reads a script and names the misuse of mixed precision before the run; it imports neither torch nor it."""

from __future__ import annotations

from mixprec.lint._catalogue import all_rules
from mixprec.lint._engine import CRASHED, UNREADABLE, lint_source
from mixprec.lint._project import Project
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView

__all__ = [
    "CRASHED",
    "UNREADABLE",
    "FileView",
    "FixSafety",
    "Project",
    "Rule",
    "all_rules",
    "lint_source",
]
