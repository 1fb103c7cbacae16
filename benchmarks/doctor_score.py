"""Score the doctor: is a planted fault detected, located and named, and a healthy script left alone? How soon?

python -m benchmarks.doctor_score --peers
python -m benchmarks.doctor_score --only 'mp04*' --record

Beside it, on the same scripts, torch.autograd.set_detect_anomaly and transformers' DebugUnderflowOverflow, which are
switched on for the unmodified script. A peer detects if it reports something itself (what the script raises without
it does not count), locates if what it prints names a line of the fault, and names no causes.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mixprec._script import Command
from mixprec.doctor import Diagnosis, examine_script
from mixprec.doctor._kept import keep, kept
from mixprec.doctor._verdict import open_question, verdicts
from mixprec.records import Severity, Verdict

ROOT = Path(__file__).parents[1]
OWN = ROOT / "tests" / "doctor" / "cases"
RECORDED = ROOT / "tests" / "doctor" / "judges" / "recorded"
RESULTS = Path(__file__).parent / "results" / "doctor_score.json"
PEERS = ("detect_anomaly", "DebugUnderflowOverflow")
MARK = "# FAULT"


@dataclass(frozen=True)
class Case:
    """A script; `codes` are the causes that may be named, `lines` where; both empty: nothing may be reported."""

    name: str
    script: Path
    codes: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.codes


@dataclass(frozen=True)
class Score:
    """How a tool did on a case. Of a healthy one, `detected` is a false alarm and the others are None."""

    tool: str
    case: str
    healthy: bool
    detected: bool
    located: bool | None
    cause: bool | None
    said: str = ""
    seconds: float = 0.0


def own_cases(folder: Path = OWN) -> Iterator[Case]:
    """The repository's own: `mpNNN_name/bad.py` with its lines marked, `good.py` beside it."""
    also = json.loads((folder / "also.json").read_text())
    for script in sorted(folder.glob("*/*.py")):
        name = f"{script.parent.name}/{script.stem}"
        if script.stem == "good":
            yield Case(name, script)
            continue
        lines = [n for n, line in enumerate(script.read_text().splitlines(), 1) if line.endswith(MARK)]
        yield Case(name, script, (script.parent.name[:5].upper(), *also.get(script.parent.name, ())), tuple(lines))


def labelled_cases(folder: Path) -> Iterator[Case]:
    """Scripts of another folder, labelled by its `cases.json`; those without a doctor's label are passed over."""
    for name, label in json.loads((folder / "cases.json").read_text()).items():
        if label.get("healthy") or label.get("doctor"):
            yield Case(Path(name).stem, folder / name, tuple(label.get("doctor", ())), tuple(label.get("lines", ())))


def ours(case: Case, limit: float, record: Path | None) -> Score:
    """The doctor's score."""
    began = time.perf_counter()
    diagnosis = examine_script(Command((str(case.script),)), time_limit=limit, fast=True)
    seconds = time.perf_counter() - began
    if record is not None:
        keep_relative(diagnosis, case, record)
    return judged(case, diagnosis.verdicts, diagnosis.problem or diagnosis.open_question, seconds)


def recorded(case: Case, folder: Path = RECORDED) -> Score:
    """The score of today's judges on the examination that was recorded."""
    examination = kept(path_in(folder, case))
    return judged(case, verdicts(examination), open_question(examination))


def path_in(folder: Path, case: Case) -> Path:
    """Where the examination of `case` is kept."""
    return folder / f"{case.name.replace('/', '-')}.jsonl.xz"


def judged(case: Case, found: Sequence[Verdict], otherwise: str | None, seconds: float = 0.0) -> Score:
    """What the verdicts on a case are worth; `otherwise`: what is said where there is none, a problem or a question."""
    serious = [v for v in found if v.severity is not Severity.INFO]
    first = serious[0] if serious else None
    said = f"{first.code}@{first.location.line}" if first else (otherwise or "nothing wrong").splitlines()[0]
    if case.healthy:
        return Score("doctor", case.name, True, bool(serious or otherwise), None, None, said, seconds)
    named = first is not None and first.code in case.codes
    located = first is not None and (not case.lines or first.location.line in case.lines)
    return Score("doctor", case.name, False, first is not None, located, named, said, seconds)


def keep_relative(diagnosis: Diagnosis, case: Case, folder: Path) -> None:
    """Keeps the examination with the script's path cut down to its name: it says nothing of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    folders = (case.script.parent, Path(sys.prefix), Path(sys.base_prefix), ROOT)
    keep(diagnosis.examination, path_in(folder, case), without=[str(one) + os.sep for one in folders])


PEER_CODE = {
    "detect_anomaly": """
import runpy, sys, torch
torch.autograd.set_detect_anomaly(True)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
""",
    "DebugUnderflowOverflow": """
import runpy, sys, torch
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers.debug_utils import DebugUnderflowOverflow
watched = []
def attach(module, args):
    if not watched:
        watched.append(module)
        DebugUnderflowOverflow(module)
register_module_forward_pre_hook(attach)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
""",
}
PEER_WORDS = {
    "detect_anomaly": ("returned nan values in its", "Error detected in"),
    "DebugUnderflowOverflow": ("inf/nan encountered", "DebugUnderflowOverflow: inf/nan", "Detected inf/nan"),
}


def peer(tool: str, case: Case, limit: float) -> Score:
    """A peer's score."""
    began = time.perf_counter()
    command = [sys.executable, "-c", PEER_CODE[tool], str(case.script)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        output = ran.stdout + ran.stderr
    except subprocess.TimeoutExpired as late:
        output = str(late.stdout or "") + str(late.stderr or "")
    seconds = time.perf_counter() - began
    detected = any(word in output for word in PEER_WORDS[tool])
    if case.healthy:
        return Score(tool, case.name, True, detected, None, None, "", seconds)
    lines = [f'{case.script}", line {line},' for line in case.lines]
    return Score(
        tool, case.name, False, detected, detected and any(line in output for line in lines), False, "", seconds
    )


def note(jobs: int, recorded_ones: bool) -> str:
    """What is to be known of the numbers."""
    if recorded_ones:
        return "Own cases, the judges of today on recorded examinations. Nothing was timed."
    several = f"{jobs} at a time, so that they are upper bounds" if jobs > 1 else "one at a time"
    today = date.today().isoformat()
    return f"Own cases, one examination each. Seconds are those of {today} on {os.cpu_count()} cores, {several}."


HEAD = ("tool", "detected", "located", "right cause", "false alarms", "median seconds")


def table(scores: Sequence[Score]) -> str:
    """A row per tool, in Markdown. A line counts as located by the doctor only where the cause is right as well."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for tool in dict.fromkeys(score.tool for score in scores):
        mine = [score for score in scores if score.tool == tool]
        faulty, healthy = [s for s in mine if not s.healthy], [s for s in mine if s.healthy]
        located = sum(bool(s.located and (s.cause or tool != "doctor")) for s in faulty)
        rows.append(
            (
                tool,
                f"{sum(s.detected for s in faulty)}/{len(faulty)}",
                f"{located}/{len(faulty)}",
                f"{sum(bool(s.cause) for s in faulty)}/{len(faulty)}" if tool == "doctor" else "–",
                f"{sum(s.detected for s in healthy)}/{len(healthy)}",
                f"{statistics.median(s.seconds for s in mine):.0f}",
            )
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def failures(scores: Sequence[Score], cases: Sequence[Case]) -> list[str]:
    """A line per case where the doctor was wrong."""
    by_name = {case.name: case for case in cases}
    wrong = [s for s in scores if s.tool == "doctor" and (s.detected if s.healthy else not (s.cause and s.located))]
    return [f"{s.case}: wanted {by_name[s.case].codes} at {by_name[s.case].lines}, said {s.said}" for s in wrong]


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    cases = [*own_cases()] if not options.folder else [c for f in options.folder for c in labelled_cases(Path(f))]
    cases = [case for case in cases if fnmatch.fnmatch(case.name, options.only)]
    scores: list[Score] = []
    for mine, *theirs in ([recorded(case)] for case in cases) if options.recorded else run(cases, options):
        right = not mine.detected if mine.healthy else bool(mine.cause and mine.located)
        print(f"{'ok   ' if right else 'WRONG'} {mine.case}: {mine.said} ({mine.seconds:.0f} s)", flush=True)
        scores += [mine, *theirs]
    print("\n" + table(scores), *failures(scores, cases), sep="\n")
    if options.output:
        document: dict[str, Any] = {
            "note": note(options.jobs, options.recorded),
            "scores": [dataclasses.asdict(score) for score in scores],
            "table": table(scores),
        }
        Path(options.output).write_text(json.dumps(document, indent=1) + "\n")


def run(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[list[Score]]:
    """The scores of each case, as soon as they are known, in order."""
    record = Path(options.record) if options.record else None
    one = functools.partial(scored, limit=options.time, record=record, peers=options.peers)
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(one, cases)


def scored(case: Case, limit: float, record: Path | None, peers: bool) -> list[Score]:
    """The doctor's score of a case, and those of the peers."""
    return [ours(case, limit, record), *(peer(tool, case, limit) for tool in (PEERS if peers else ()))]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doctor_score", description=__doc__.splitlines()[0])  # type: ignore[union-attr] # the module has a docstring
    parser.add_argument("folder", nargs="*", help="folders with scripts and a cases.json (default: the own cases)")
    parser.add_argument("--only", default="*", help="case names that match this pattern")
    parser.add_argument("--peers", action="store_true", help="run the peers on the same scripts")
    parser.add_argument("--time", type=float, default=180.0, help="seconds for one examination")
    parser.add_argument("--jobs", type=int, default=1, help="examinations at a time; seconds are then upper bounds")
    parser.add_argument("--recorded", action="store_true", help="judge recorded examinations; nothing is run or timed")
    parser.add_argument("--record", help="folder to keep the examinations in")
    parser.add_argument("--output", help=f"file for the scores, e.g. {RESULTS.relative_to(ROOT)}")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
