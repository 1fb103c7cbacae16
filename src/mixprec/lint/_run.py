"""A run lints files one by one, in several processes where there are many; no file can stop it.

Each file becomes a `FileResult`, in the order of the files; everything else is counting.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from mixprec.lint._baseline import Baseline, Entry
from mixprec.lint._catalogue import speaks
from mixprec.lint._config import LintConfig
from mixprec.lint._files import CONFIGURATION
from mixprec.lint._lint_file import FileResult, Fixing, lint_file, lost, relative
from mixprec.records import Finding

__all__ = ["Report", "entries", "run"]

WORTH_PROCESSES = 48
"""Files that speak of precision; below this number starting processes takes longer than linting."""

MOST_IN_A_ROW = 32
"""Files that a process takes at once: neighbours import the same modules, which each process parses for itself."""


@dataclass(frozen=True)
class Report:
    """The outcome of a run. `gone` counts entries of the baseline that are no longer found."""

    results: tuple[FileResult, ...]
    findings: tuple[Finding, ...]
    known: int = 0
    gone: int = 0

    @property
    def below(self) -> int:
        """How many findings were not severe enough to be reported."""
        return sum(result.below for result in self.results)

    @property
    def silenced(self) -> int:
        """How many findings comments silenced."""
        return sum(result.silenced for result in self.results)

    @property
    def nothing_read(self) -> bool:
        """Whether there were files and not one of them could be read."""
        return bool(self.results) and all(result.unreadable for result in self.results)


def run(
    files: Sequence[Path],
    config: LintConfig,
    *,
    baseline: Baseline | None = None,
    fixing: Fixing | None = None,
    jobs: int | None = None,
) -> Report:
    """Lint `files`. `jobs` processes at most; by default one per CPU, and none besides this one for few files."""
    results = tuple(_each(files, functools.partial(lint_file, config=config, fixing=fixing), jobs))
    findings = tuple(finding for result in results for finding in result.findings)
    if baseline is None:
        return Report(results, findings)
    found = entries(results, config)
    fresh = baseline.new(found)
    linted = frozenset(relative(result.path, config) for result in results)
    gone = baseline.gone((entry for entry, _ in found), linted)
    return Report(results, fresh, known=len(findings) - len(fresh), gone=gone)


def entries(results: Iterable[FileResult], config: LintConfig) -> list[tuple[Entry, Finding]]:
    """What each finding is recognised by in a baseline."""
    return [
        (Entry(relative(result.path, config), finding.code, result.line(finding.location).strip()), finding)
        for result in results
        for finding in result.findings
    ]


Lint = Callable[[Path], FileResult]


def _each(files: Sequence[Path], lint: Lint, jobs: int | None) -> Iterable[FileResult]:
    """`lint` of every file, in order."""
    speaking = {file for file in files if _speaks(file)}
    workers = min(jobs or os.cpu_count() or 1, len(speaking) // (WORTH_PROCESSES // 2))
    if workers < 2:
        return [lint(file) if file in speaking else FileResult(str(file)) for file in files]
    done = _shared_out([file for file in files if file in speaking], lint, workers)
    return [done.get(file) or FileResult(str(file)) for file in files]


def _shared_out(files: Sequence[Path], lint: Lint, workers: int) -> dict[Path, FileResult]:
    """`lint` of every file by `workers` processes; what a process that dies leaves undone is done one by one."""
    done: dict[Path, FileResult] = {}
    share = min(MOST_IN_A_ROW, -(-len(files) // (4 * workers)))
    with contextlib.suppress(BrokenProcessPool), _pool(workers) as pool:
        for file, result in zip(files, pool.map(lint, files, chunksize=share), strict=True):
            done[file] = result
    while left := [file for file in files if file not in done]:
        done |= _one_by_one(left, lint)
    return done


def _one_by_one(files: Sequence[Path], lint: Lint) -> dict[Path, FileResult]:
    """`lint` of the files up to the first at which the process dies, that one included."""
    done: dict[Path, FileResult] = {}
    with _pool(1) as pool:
        for file in files:
            try:
                done[file] = pool.submit(lint, file).result()
            except BrokenProcessPool:
                return done | {file: lost(file)}
    return done


def _pool(workers: int) -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")  # forking a process with threads is not safe
    return concurrent.futures.ProcessPoolExecutor(workers, mp_context=context)


def _speaks(file: Path) -> bool:
    """Whether any rule would look at the file; what cannot be read is left to `lint_file` to complain about."""
    try:
        text = file.read_bytes().replace(b"\0", b"").decode("latin-1")  # without null bytes UTF-16 can be searched too
        return speaks(text) or file.suffix.lower() in CONFIGURATION
    except OSError:
        return True
