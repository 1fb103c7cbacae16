"""How long does the linter take over a thousand files of ordinary Python, beside TorchFix on the same files?

The files are the first by path of the packages in this environment. Most never mention mixed precision: those are read
and searched, not parsed. Both programs run as a user runs them, start-up included, with two processes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import CONTENDER, MEDIAN, MINIMUM, QUARTILES, RATIO, Answer, Bench, Column, Race, Table, Target
from mixprec.lint import Project, lint_source
from mixprec.lint._catalogue import speaks

FILES = 1000
QUICK_FILES = 100
ROUNDS, QUICK_ROUNDS = 3, 2
PROCESSES = 2
OURS, PEER = "mixprec lint", "TorchFix"
LIMIT_S = 600

COLUMNS = (
    CONTENDER,
    MEDIAN,
    MINIMUM,
    Column("cpu_s", "CPU s, all processes", "{:.1f}"),
    RATIO,
    QUARTILES,
    Column("rounds", "rounds"),
)
KINDS = (
    Column("contender", ""),
    Column("files", "files"),
    Column("share", "share", "{:.0%}"),
    Column("mean_ms", "mean ms", "{:.2f}"),
    Column("largest_ms", "longest ms", "{:.1f}"),
)


def copy_tree(target: Path, files: int = FILES) -> list[Path]:
    """The first `files` scripts of this environment's packages, by path, copied under `target`."""
    source = Path(sysconfig.get_paths()["purelib"])
    copied = []
    for path in sorted(source.rglob("*.py"))[:files]:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        copied.append(Path(shutil.copyfile(path, place)))
    return copied


def commands(tree: Path) -> dict[str, list[str]]:
    """What a user would type; TorchFix only where it is installed (here, or on the PATH)."""
    found = {OURS: [sys.executable, "-m", "mixprec", "lint", "--no-config", "--jobs", str(PROCESSES), str(tree)]}
    if importlib.util.find_spec("torchfix") is not None:
        found[PEER] = [sys.executable, "-m", "torchfix", "--jobs", str(PROCESSES), str(tree)]
    elif program := shutil.which("torchfix"):
        found[PEER] = [program, "--jobs", str(PROCESSES), str(tree)]
    return found


@dataclass(frozen=True)
class Lasted:
    """Seconds that one call of a program took: on the clock, and of CPU time in all its processes."""

    wall: float
    cpu: float


def race(programs: Mapping[str, Sequence[str]], rounds: int) -> tuple[Race, Race]:
    """Every program once per round, in another order every time: clock time, and CPU time."""
    names = list(programs)
    lasted: dict[str, list[Lasted]] = {name: [] for name in names}
    for done in range(rounds):
        for place in range(len(names)):
            name = names[(place + done) % len(names)]
            lasted[name].append(call(programs[name]))
    wall = Race({name: [each.wall for each in times] for name, times in lasted.items()})
    return wall, Race({name: [each.cpu for each in times] for name, times in lasted.items()})


def call(command: Sequence[str]) -> Lasted:
    """Run a linter; that it finds something is no failure."""
    start, cpu = time.perf_counter(), _children()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr[-2000:]}")
    return Lasted(time.perf_counter() - start, _children() - cpu)


def _children() -> float:
    used = os.times()
    return used.children_user + used.children_system


@dataclass(frozen=True)
class Kind:
    """Files of one kind and the milliseconds that each took in one process."""

    name: str
    milliseconds: list[float]

    def row(self, files: int) -> dict[str, Any]:
        """As a row of a table."""
        return {
            "contender": self.name,
            "files": len(self.milliseconds),
            "share": len(self.milliseconds) / files,
            "mean_ms": statistics.fmean(self.milliseconds or [0.0]),
            "largest_ms": max(self.milliseconds, default=0.0),
        }


def kinds(paths: Sequence[Path]) -> tuple[Kind, Kind]:
    """Files that never mention precision, and files that do; CPU time, reading included."""
    silent, speaking = Kind("never mention mixed precision", []), Kind("mention it, so are parsed", [])
    for milliseconds, said in _timed(paths):
        (speaking if said else silent).milliseconds.append(milliseconds)
    return silent, speaking


def _timed(paths: Sequence[Path]) -> Iterator[tuple[float, bool]]:
    speaks("")  # loads the rules
    for path in paths:
        start = time.process_time()
        text = path.read_bytes().decode("utf-8", "replace")
        said = speaks(text)
        if said:
            lint_source(text, str(path), project=Project.around(path))
        yield (time.process_time() - start) * 1e3, said


def run(bench: Bench, bandwidth: float) -> Answer:
    """Two tables: the run as a whole, and the two kinds of files. The targets are for a thousand files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = copy_tree(Path(folder), QUICK_FILES if bench.quick else FILES)
        programs = commands(Path(folder))
        wall, cpu = race(programs, QUICK_ROUNDS if bench.quick else ROUNDS)
        silent, speaking = kinds(paths)
    peer = PEER if PEER in programs else OURS
    title = f"{len(paths):,} files of ordinary Python with {PROCESSES} processes"
    rows = [wall.row(name, peer) | {"cpu_s": cpu.median(name)} for name in programs]
    whole = Table("lint_speed", title, COLUMNS, rows)
    parts = Table("lint_kinds", "The same files one by one", KINDS, [k.row(len(paths)) for k in (silent, speaking)])
    return Answer([whole, parts], [] if bench.quick else _targets(wall.median(OURS), silent))


def _targets(seconds: float, silent: Kind) -> list[Target]:
    each = statistics.fmean(silent.milliseconds or [0.0])
    return [
        Target("lint, 1,000 files: seconds", 20.0, seconds, at_most=True),
        Target("lint, a file that never mentions precision: ms", 2.0, each, at_most=True),
    ]
