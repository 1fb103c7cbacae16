"""A run lints files one by one, in several processes where there are many; no file can stop it.

Each file becomes a `FileResult`, in the order of the files; everything else is counting.
"""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mixprec.lint import _apply
from mixprec.lint._baseline import Baseline, Entry
from mixprec.lint._catalogue import all_rules
from mixprec.lint._config import LintConfig
from mixprec.lint._decode import UnreadableError, decode
from mixprec.lint._document import Document, NotebookDocument, ScriptDocument
from mixprec.lint._engine import UNREADABLE, lint_source
from mixprec.lint._files import CONFIGURATION, NOTEBOOK
from mixprec.lint._lines import Lines
from mixprec.lint._notebook import NotebookError, read_notebook
from mixprec.lint._project import Project
from mixprec.lint._suppress import sift
from mixprec.lint._words import AMP_WORDS
from mixprec.lint.configs import lint_configuration
from mixprec.records import Finding, Location, Severity

__all__ = ["FileResult", "Fixing", "Report", "entries", "lint_bytes", "lint_file", "lint_text", "run"]

LARGEST = 4 * 1024 * 1024
"""Bytes; a larger file holds data and is not read (notebooks may hold pictures and are always read)."""

WORTH_PROCESSES = 48
"""Files that speak of precision; below this number starting processes takes longer than linting."""


SHORT = 4
"""Letters; words up to this length occur inside others that say nothing of precision."""


@dataclass(frozen=True)
class Fixing:
    """What to do with fixes: apply the safe ones or all, and write the files or only tell what would be written."""

    unsafe: bool = False
    write: bool = False


@dataclass(frozen=True)
class FileResult:
    """What was found in one file. `path` is as the user knows it; `findings` have places as the user knows them.

    `sources` holds the texts that the findings' lines belong to: the file's under None, or a cell's under its number;
    only where there are findings. `before` and `after` are the file's text where fixing changes it.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    silenced: int = 0
    unreadable: bool = False
    sources: dict[int | None, str] = field(default_factory=dict)
    applied: tuple[Finding, ...] = ()
    before: str = ""
    after: str = ""

    def line(self, location: Location) -> str:
        """The text of the line that a location in this file names."""
        return Lines(self.sources.get(location.cell, "")).line(location.line or 0)


@dataclass(frozen=True)
class Report:
    """The outcome of a run. `gone` counts entries of the baseline that are no longer found."""

    results: tuple[FileResult, ...]
    findings: tuple[Finding, ...]
    known: int = 0
    gone: int = 0

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
    linted = frozenset(_relative(result.path, config) for result in results)
    gone = baseline.gone((entry for entry, _ in found), linted)
    return Report(results, fresh, known=len(findings) - len(fresh), gone=gone)


def entries(results: Iterable[FileResult], config: LintConfig) -> list[tuple[Entry, Finding]]:
    """What each finding is recognised by in a baseline."""
    return [
        (Entry(_relative(result.path, config), finding.code, result.line(finding.location).strip()), finding)
        for result in results
        for finding in result.findings
    ]


def _each(files: Sequence[Path], lint: functools.partial[FileResult], jobs: int | None) -> Iterable[FileResult]:
    """`lint` of every file, in order."""
    speaking = {file for file in files if _speaks(file)}
    workers = min(jobs or os.cpu_count() or 1, len(speaking) // (WORTH_PROCESSES // 2))
    if workers < 2:
        return [lint(file) if file in speaking else FileResult(str(file)) for file in files]
    todo = [file for file in files if file in speaking]
    context = multiprocessing.get_context("spawn")  # forking a process with threads is not safe
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        done = dict(zip(todo, pool.map(lint, todo, chunksize=8), strict=True))
    return [done.get(file) or FileResult(str(file)) for file in files]


def _speaks(file: Path) -> bool:
    """Whether any rule would look at the file; what cannot be read is left to `lint_file` to complain about."""
    try:
        text = file.read_bytes().replace(b"\0", b"").decode("latin-1")  # without null bytes UTF-16 can be searched too
        return _speaking().search(text) is not None or file.suffix.lower() in CONFIGURATION
    except OSError:
        return True


@functools.cache
def _speaking() -> re.Pattern[str]:
    """Finds any word that a rule listens for; a short one must stand by itself, as `amp` does not in `example`."""
    words = sorted({*AMP_WORDS, *(word for rule in all_rules() for word in rule.words)}, key=len, reverse=True)
    short = (rf"(?<![A-Za-z]){re.escape(word)}(?![a-z])" for word in words if len(word) <= SHORT and word.islower())
    return re.compile(
        "|".join([*short, *(re.escape(word) for word in words if len(word) > SHORT or not word.islower())])
    )


def lint_file(file: Path, config: LintConfig, fixing: Fixing | None = None) -> FileResult:
    """What is found in `file`; whatever keeps it from being read is a finding as well."""
    try:
        if file.suffix.lower() not in NOTEBOOK and file.stat().st_size > LARGEST:
            return _too_large(str(file), config)
        data = file.read_bytes()
    except OSError as error:
        return _unreadable(str(file), f"it cannot be read: {error.strerror or error}", None, config)
    result, document = lint_bytes(data, str(file), config, fixing)
    if fixing is not None and fixing.write and document is not None and result.after != result.before:
        _replace_file(file, document.encode())
    return result


def lint_bytes(
    data: bytes, path: str, config: LintConfig, fixing: Fixing | None = None
) -> tuple[FileResult, Document | None]:
    """What is found in a file's bytes, and the document after fixing (None where it is none that can be edited)."""
    codes = config.codes - config.ignored_in(_relative(path, config))
    suffix = Path(path).suffix.lower()
    try:
        decoded = decode(data)
        if suffix in CONFIGURATION:
            return _configuration(decoded.text, path, codes), None
        if suffix in NOTEBOOK:
            document: Document = NotebookDocument(read_notebook(decoded.text), decoded)
        else:
            document = ScriptDocument(decoded)
    except UnreadableError as error:
        return _unreadable(path, str(error), error.line, config), None
    except NotebookError as error:
        line = None if error.offset is None else Lines(decoded.text).place(error.offset)[0]
        return _unreadable(path, str(error), line, config), None
    return _document(document, path, codes, fixing)


def _document(
    document: Document, path: str, codes: frozenset[str], fixing: Fixing | None
) -> tuple[FileResult, Document]:
    lint = _Linter(path, codes)
    before = document.source
    applied: tuple[Finding, ...] = ()
    changed = document
    if fixing is not None:
        fixed = _apply.fix(document, lint, unsafe=fixing.unsafe)
        changed, applied = fixed.document, fixed.applied
    shown = changed if fixing is None or fixing.write else document
    found = lint(shown.source)
    findings = (*(shown.present(finding) for finding in found), *_bad_cells(shown, path, codes))
    return (
        FileResult(
            path,
            findings,
            silenced=lint.silenced,
            unreadable=any(finding.code == UNREADABLE and finding.location.cell is None for finding in findings),
            sources=_sources(shown) if findings else {},
            applied=tuple(document.present(finding) for finding in applied),
            before=_stored(document) if changed.source != before else "",
            after=_stored(changed) if changed.source != before else "",
        ),
        changed,
    )


def lint_text(source: str, path: str, config: LintConfig) -> tuple[Finding, ...]:
    """What is found in the text of a script, ignore comments and per-file ignores obeyed."""
    return _Linter(path, config.codes - config.ignored_in(_relative(path, config)))(source)


class _Linter:
    """Findings of the wanted codes in a text of the file `path`, ignore comments obeyed."""

    def __init__(self, path: str, codes: frozenset[str]) -> None:
        self.path = path
        self.codes = codes
        self.silenced = 0
        self.project = Project.around(path)

    def __call__(self, source: str) -> tuple[Finding, ...]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's opinion of the user's escapes is not ours to print
            found = lint_source(source, self.path, select=sorted(self.codes), project=self.project)
        sifted = sift([finding for finding in found if finding.code in self.codes], source, self.codes)
        self.silenced = sifted.silenced
        unused = (replace(f, location=replace(f.location, file=self.path)) for f in sifted.unused)
        return tuple(sorted((*sifted.kept, *unused), key=_place))


def _place(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line or 0, finding.location.column or 0, finding.code


def _configuration(text: str, path: str, codes: frozenset[str]) -> FileResult:
    findings = tuple(finding for finding in lint_configuration(text, path) if finding.code in codes)
    return FileResult(path, findings, sources={None: text} if findings else {})


def _bad_cells(document: Document, path: str, codes: frozenset[str]) -> list[Finding]:
    """A finding for every cell that speaks of precision and does not parse."""
    if not isinstance(document, NotebookDocument) or UNREADABLE not in codes:
        return []
    return [
        Finding(
            UNREADABLE,
            "not-python",
            Severity.WARNING,
            f"This cell is not Python that can be read, and was left out: {cell.error.msg}.",
            Location(path, cell.error.lineno or 1, max(cell.error.offset or 1, 1), cell=cell.number),
        )
        for cell in document.notebook.cells
        if cell.error is not None and _speaking().search(cell.text)
    ]


def _sources(document: Document) -> dict[int | None, str]:
    if isinstance(document, NotebookDocument):
        return {cell.number: cell.text for cell in document.notebook.cells}
    return {None: document.source}


def _stored(document: Document) -> str:
    """The text of the file as it is stored."""
    return document.notebook.raw if isinstance(document, NotebookDocument) else document.source


def _unreadable(path: str, why: str, line: int | None, config: LintConfig) -> FileResult:
    message = f"This file was not linted: {why}."
    finding = Finding(UNREADABLE, "not-python", Severity.ERROR, message, Location(path, line or 1, 1))
    return FileResult(path, (finding,) if UNREADABLE in config.codes else (), unreadable=True)


def _too_large(path: str, config: LintConfig) -> FileResult:
    message = f"This file was not linted: it is larger than {LARGEST // 1024**2} MiB, so it holds data."
    finding = Finding(UNREADABLE, "not-python", Severity.INFO, message, Location(path, 1, 1))
    return FileResult(path, (finding,) if UNREADABLE in config.codes else (), unreadable=True)


def _relative(path: str, config: LintConfig) -> str:
    return Path(os.path.relpath(path, config.root)).as_posix()


def _replace_file(file: Path, data: bytes) -> None:
    """Write beside the file and move into its place, so that a crash leaves the old file or the new one."""
    target = Path(os.path.realpath(file))
    draft = target.with_name(f".{target.name}.mixprec")
    draft.write_bytes(data)
    os.chmod(draft, target.stat().st_mode)
    os.replace(draft, target)
