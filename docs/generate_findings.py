"""Write docs/findings.md: every code with its symptom and who sees it, from the catalogue of causes.

Run: python docs/generate_findings.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from generated import between, run

from mixprec.causes import Cause, Where, all_causes

PAGE = Path(__file__).parent / "findings.md"

AREAS = (
    ("Loss scaling", "MP001", "MP029"),
    ("Range: what overflows in the forward pass", "MP030", "MP040"),
    ("Invalid operations and masks", "MP041", "MP053"),
    ("Digits: what is lost without a NaN", "MP060", "MP072"),
    ("Casts, regions and wrappers", "MP080", "MP098"),
    ("Speed", "MP100", "MP111"),
    ("Memory", "MP120", "MP126"),
    ("Not precision: what looks like it", "MP130", "MP147"),
    ("Ranks, compilers and kernels", "MP160", "MP174"),
    ("Habits that a linter sees", "MP200", "MP219"),
    ("What tools say about themselves", "MP290", "MP299"),
    ("What the audit sees", "MP300", "MP399"),
)


def tables() -> str:
    """One table per area."""
    causes = list(all_causes())
    parts = []
    for title, first, last in AREAS:
        rows = [_row(cause) for cause in causes if first <= cause.code <= last]
        if rows:
            parts += [f"## {title}", "", "| code | name | what it is | lint | run | control |"]
            parts += ["| --- | --- | --- | :-: | :-: | :-: |", *rows, ""]
    return "\n".join(parts).rstrip()


def _row(cause: Cause) -> str:
    seen = " | ".join("●" if where in cause.where else "" for where in (Where.LINT, Where.RUN, Where.CONTROL))
    return f"| [{cause.code}](rules/{cause.code}.md) | {cause.name} | {cause.title} | {seen} |"


def outputs() -> Mapping[Path, str]:
    """The page with its tables."""
    return {PAGE: between(PAGE.read_text(encoding="utf-8"), "findings", tables())}


if __name__ == "__main__":
    sys.exit(run(outputs, sys.argv[1:]))
