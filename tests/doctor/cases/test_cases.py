"""The own cases are what they say: a marked fault, a neighbour without it, a code of the catalogue, many kinds."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from mixprec._script import Command
from mixprec.causes import cause_names
from mixprec.doctor import examine_script

HERE = Path(__file__).parent
FAULTS = sorted(path for path in HERE.glob("mp*") if path.is_dir())


@pytest.mark.parametrize("folder", FAULTS, ids=lambda path: path.name)
def test_a_case_has_a_marked_fault_and_a_neighbour(folder: Path) -> None:
    """Both scripts parse, begin with their story, differ, and only the faulty one has marked lines."""
    bad, good = ((folder / name).read_text() for name in ("bad.py", "good.py"))
    assert ast.get_docstring(ast.parse(bad))
    assert ast.get_docstring(ast.parse(good))
    assert "# FAULT" in bad
    assert "# FAULT" not in good
    assert bad.replace("  # FAULT", "") != good
    assert folder.name[:5].upper() in cause_names()


def test_many_kinds_are_covered() -> None:
    """At least forty kinds of fault have a case; codes that are accepted besides are in the catalogue."""
    assert len({folder.name[:5] for folder in FAULTS}) >= 40
    also = json.loads((HERE / "also.json").read_text())
    assert also.keys() <= {folder.name for folder in FAULTS}
    assert {code for codes in also.values() for code in codes} <= cause_names().keys()


@pytest.mark.parametrize("name", ["mp005_no_update", "mp031_hand_written_rms"])
def test_a_fault_is_found_live(name: str) -> None:
    """A script that raises and one that fails in silence are examined for real: code and line are right."""
    script = HERE / name / "bad.py"
    verdict = examine_script(Command((str(script),)), fast=True, time_limit=240).verdict
    assert verdict is not None
    marked = [number for number, line in enumerate(script.read_text().splitlines(), 1) if line.endswith("# FAULT")]
    assert (verdict.code, verdict.location.line in marked) == (name[:5].upper(), True)
