"""How many planted mistakes the linter finds: every mutant of every script, by operator.

    python -m benchmarks.lint_mutations [--misses] [--json FILE]

The scripts and the operators are those of the tests, `tests/lint/mutations`; the tests look at a sample, this at all.
Ends with 1 when fewer than 95 % are found with a right code, or when a correct script is warned about.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table

from mixprec.lint import lint_source
from mixprec.records import Severity

GENERATOR = Path(__file__).parents[1] / "tests" / "lint" / "mutations" / "generator.py"
GOAL = 0.95


@dataclass(frozen=True)
class Outcome:
    """What the linter said about one mutant: the codes that were right, and those it gave (infos left out)."""

    script: str
    operator: str
    line: int
    right: tuple[str, ...]
    given: tuple[str, ...]

    @property
    def found(self) -> bool:
        return bool(set(self.right) & set(self.given))


def generator() -> ModuleType:
    """The module that makes the mutants, loaded by its path."""
    spec = importlib.util.spec_from_file_location("mutation_generator", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def outcomes(made: ModuleType) -> list[Outcome]:
    """One outcome per mutant that differs from all before it."""
    seen: set[str] = set()
    found = []
    for mutant in made.mutants():
        if mutant.source in seen:
            continue
        seen.add(mutant.source)
        codes = {finding.code for finding in lint_source(mutant.source, f"{mutant.script}.py")}
        found.append(
            Outcome(mutant.script, mutant.operator, mutant.line, tuple(sorted(mutant.codes)), tuple(sorted(codes)))
        )
    return found


def false_alarms(made: ModuleType) -> list[str]:
    """The correct scripts that are warned about, with the codes."""
    alarms = []
    for name, source in made.scripts().items():
        codes = sorted({f.code for f in lint_source(source, f"{name}.py") if f.severity is not Severity.INFO})
        if codes:
            alarms.append(f"{name}: {', '.join(codes)}")
    return alarms


def table(found: Sequence[Outcome]) -> Table:
    """Found and planted, by operator."""
    shown = Table("mistake", "codes", "planted", "found")
    for operator in dict.fromkeys(outcome.operator for outcome in found):
        mine = [outcome for outcome in found if outcome.operator == operator]
        hits = sum(outcome.found for outcome in mine)
        shown.add_row(operator.replace("_", " "), " ".join(mine[0].right), str(len(mine)), str(hits))
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    console = Console(width=None if Console().is_terminal else 120)
    made = generator()
    start = time.perf_counter()
    found = outcomes(made)
    seconds = time.perf_counter() - start
    alarms = false_alarms(made)
    hits = sum(outcome.found for outcome in found)
    console.print(table(found))
    console.print(
        f"{hits} of {len(found)} mutants found with a right code ({hits / len(found):.1%}) in {seconds:.1f} s."
    )
    console.print(
        f"{len(alarms)} of {len(made.scripts())} correct scripts warned about{': ' if alarms else '.'}", *alarms
    )
    if options.misses:
        for outcome in found:
            if not outcome.found:
                console.print(
                    f"missed: {outcome.operator} in {outcome.script}, line {outcome.line}; given {outcome.given}"
                )
    if options.json is not None:
        rows = [{**vars(outcome), "found": outcome.found} for outcome in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if hits >= GOAL * len(found) and not alarms else 1


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lint_mutations", description=__doc__.splitlines()[0])
    parser.add_argument("--misses", action="store_true", help="name every mutant that was not found")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
