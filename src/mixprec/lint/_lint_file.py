"""One file becomes one result: its findings in places that the user knows, and what fixing makes of it.

Whatever keeps a file from being read is a finding in it; nothing is raised.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from mixprec.lint import _apply
from mixprec.lint._catalogue import speaks
from mixprec.lint._config import LintConfig, Wanted
from mixprec.lint._decode import UnreadableError, decode
from mixprec.lint._document import Document, NotebookDocument, ScriptDocument
from mixprec.lint._engine import CRASHED, UNREADABLE, lint_source
from mixprec.lint._files import CONFIGURATION, NOTEBOOK
from mixprec.lint._lines import Lines
from mixprec.lint._notebook import NotebookError, read_notebook
from mixprec.lint._project import Project
from mixprec.lint._suppress import sift
from mixprec.lint.configs import lint_configuration
from mixprec.records import Finding, Location, Severity

__all__ = ["FileResult", "Fixing", "lint_bytes", "lint_file", "lint_text", "lost", "relative"]

LARGEST = 4 * 1024 * 1024
"""Bytes; a larger file holds data and is not read (notebooks may hold pictures and are always read)."""


@dataclass(frozen=True)
class Fixing:
    """What to do with fixes: apply the safe ones or all, and write the files or only tell what would be written."""

    unsafe: bool = False
    write: bool = False


@dataclass(frozen=True)
class FileResult:
    """What was found in one file. `path` is as the user knows it; `findings` have places as the user knows them.

    `below` counts findings that are not severe enough to be reported, `silenced` those that comments silence.
    `sources` holds the texts that the findings' lines belong to: the file's under None, or a cell's under its number;
    only where there are findings. `before` and `after` are the file's text where fixing changes it.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    below: int = 0
    silenced: int = 0
    unreadable: bool = False
    sources: dict[int | None, str] = field(default_factory=dict)
    applied: tuple[Finding, ...] = ()
    before: str = ""
    after: str = ""

    def line(self, location: Location) -> str:
        """The text of the line that a location in this file names."""
        return Lines(self.sources.get(location.cell, "")).line(location.line or 0)


def lint_file(file: Path, config: LintConfig, fixing: Fixing | None = None) -> FileResult:
    """What is found in `file`; whatever keeps it from being read is a finding as well."""
    try:
        if file.suffix.lower() not in NOTEBOOK and file.stat().st_size > LARGEST:
            why = f"it is larger than {LARGEST // 1024**2} MiB, so it holds data"
            return _unreadable(str(file), why, None, config.wanted(relative(str(file), config)), Severity.INFO)
        data = file.read_bytes()
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
        return _unreadable(str(file), why, None, config.wanted(relative(str(file), config)))
    result, document = lint_bytes(data, str(file), config, fixing)
    if fixing is not None and fixing.write and document is not None and result.after != result.before:
        _replace_file(file, document.encode())
    return result


def lost(file: Path) -> FileResult:
    """The result for a file at which the process that linted it died, however that came about."""
    message = "This file was not linted: the process that read it died."
    finding = Finding(CRASHED, "rule-crashed", Severity.WARNING, message, Location(str(file), 1, 1))
    return FileResult(str(file), (finding,), unreadable=True)


def lint_bytes(
    data: bytes, path: str, config: LintConfig, fixing: Fixing | None = None
) -> tuple[FileResult, Document | None]:
    """What is found in a file's bytes, and the document after fixing (None where it is none that can be edited)."""
    wanted = config.wanted(relative(path, config))
    suffix = Path(path).suffix.lower()
    try:
        decoded = decode(data)
        if suffix in CONFIGURATION:
            return _plain(path, lint_configuration(decoded.text, path), wanted, text=decoded.text), None
        if suffix in NOTEBOOK:
            document: Document = NotebookDocument(read_notebook(decoded.text), decoded)
        else:
            document = ScriptDocument(decoded)
    except UnreadableError as error:
        return _unreadable(path, str(error), error.line, wanted), None
    except NotebookError as error:
        line = None if error.offset is None else Lines(decoded.text).place(error.offset)[0]
        return _unreadable(path, str(error), line, wanted), None
    return _document(document, path, wanted, fixing)


def lint_text(source: str, path: str, config: LintConfig) -> tuple[Finding, ...]:
    """What is reported of the text of a script, ignore comments and per-file ignores obeyed."""
    return _Linter(path, config.wanted(relative(path, config)))(source)


def _document(document: Document, path: str, wanted: Wanted, fixing: Fixing | None) -> tuple[FileResult, Document]:
    lint = _Linter(path, wanted)
    applied: tuple[Finding, ...] = ()
    changed = document
    if fixing is not None:
        fixed = _apply.fix(document, lint, unsafe=fixing.unsafe)
        changed, applied = fixed.document, fixed.applied
    shown = changed if fixing is None or fixing.write else document
    findings = (*(shown.present(finding) for finding in lint(shown.source)), *_bad_cells(shown, path, wanted))
    is_changed = changed.source != document.source
    return (
        FileResult(
            path,
            findings,
            below=lint.below,
            silenced=lint.silenced,
            unreadable=any(finding.code == UNREADABLE and finding.location.cell is None for finding in findings),
            sources=_sources(shown) if findings else {},
            applied=tuple(document.present(finding) for finding in applied),
            before=_stored(document) if is_changed else "",
            after=_stored(changed) if is_changed else "",
        ),
        changed,
    )


class _Linter:
    """What is reported of a text of the file `path`; `below` and `silenced` count the rest of the last text."""

    def __init__(self, path: str, wanted: Wanted) -> None:
        self.path = path
        self.wanted = wanted
        self.below = self.silenced = 0
        self.project = Project.around(path)

    def __call__(self, source: str) -> tuple[Finding, ...]:
        codes = self.wanted.codes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's opinion of the user's escapes is not ours to print
            found = lint_source(source, self.path, select=sorted(codes), project=self.project)
        sifted = sift([finding for finding in found if finding.code in codes], source, codes)
        unused = (replace(f, location=replace(f.location, file=self.path)) for f in sifted.unused)
        left = sorted((*sifted.kept, *unused), key=_place)
        reported = tuple(finding for finding in left if self.wanted.reports(finding))
        self.below, self.silenced = len(left) - len(reported), sifted.silenced
        return reported


def _place(finding: Finding) -> tuple[int, int, str]:
    return finding.location.line or 0, finding.location.column or 0, finding.code


def _bad_cells(document: Document, path: str, wanted: Wanted) -> list[Finding]:
    """A finding for every cell that speaks of precision and does not parse."""
    if not isinstance(document, NotebookDocument) or UNREADABLE not in wanted.codes:
        return []
    made = [
        Finding(
            UNREADABLE,
            "not-python",
            Severity.WARNING,
            f"This cell is not Python that can be read, and was left out: {cell.error.msg}.",
            Location(path, cell.error.lineno or 1, max(cell.error.offset or 1, 1), cell=cell.number),
        )
        for cell in document.notebook.cells
        if cell.error is not None and speaks(cell.text)
    ]
    return [finding for finding in made if wanted.reports(finding)]


def _sources(document: Document) -> dict[int | None, str]:
    if isinstance(document, NotebookDocument):
        return {cell.number: cell.text for cell in document.notebook.cells}
    return {None: document.source}


def _stored(document: Document) -> str:
    """The text of the file as it is stored."""
    return document.notebook.raw if isinstance(document, NotebookDocument) else document.source


def _plain(
    path: str, found: Iterable[Finding], wanted: Wanted, *, text: str = "", unreadable: bool = False
) -> FileResult:
    """The result for a file that is no document of ours."""
    looked_for = [finding for finding in found if finding.code in wanted.codes]
    reported = tuple(finding for finding in looked_for if wanted.reports(finding))
    below = len(looked_for) - len(reported)
    return FileResult(path, reported, below, unreadable=unreadable, sources={None: text} if reported else {})


def _unreadable(
    path: str, why: str, line: int | None, wanted: Wanted, severity: Severity = Severity.ERROR
) -> FileResult:
    message = f"This file was not linted: {why}."
    finding = Finding(UNREADABLE, "not-python", severity, message, Location(path, line or 1, 1))
    return _plain(path, [finding], wanted, unreadable=True)


def relative(path: str, config: LintConfig) -> str:
    """`path` from the configuration's folder, with `/`."""
    return Path(os.path.relpath(path, config.root)).as_posix()


def _replace_file(file: Path, data: bytes) -> None:
    """Write beside the file and move into its place, so that a crash leaves the old file or the new one."""
    target = Path(os.path.realpath(file))
    draft = target.with_name(f".{target.name}.mixprec")
    draft.write_bytes(data)
    os.chmod(draft, target.stat().st_mode)
    os.replace(draft, target)
