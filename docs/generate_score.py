"""Write the doctor's score, as `make score` measured it, into docs/doctor.md.

Run: python docs/generate_score.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from generated import between, run

PAGE = Path(__file__).parent / "doctor.md"
SCORES = Path(__file__).parents[1] / "benchmarks" / "results" / "doctor_score.json"


def outputs() -> Mapping[Path, str]:
    """The page with the table and what is to be known of it."""
    kept = json.loads(SCORES.read_text(encoding="utf-8"))
    return {PAGE: between(PAGE.read_text(encoding="utf-8"), "score", f"{kept['table']}\n\n{kept['note']}")}


if __name__ == "__main__":
    sys.exit(run(outputs, sys.argv[1:]))
