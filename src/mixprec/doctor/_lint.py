"""Lint reads the files of the user's own code that a run has shown to take part."""

from __future__ import annotations

from pathlib import Path

from mixprec.doctor._arm import Arm
from mixprec.lint import lint_source
from mixprec.records import Finding

__all__ = ["files_of", "lint_files"]


def files_of(script: Path | None, arm: Arm | None) -> tuple[Path, ...]:
    """The script, and the files that hold a line that an arm recorded."""
    found = [] if script is None else [script]
    if arm is not None:
        sites = [item.site for group in (arm.events, arm.regions, arm.optimizers, arm.scalers) for item in group]
        sites += list(arm.crash.frames) if arm.crash is not None else []
        found += [Path(site.file) for site in sites if site.file is not None]
    return tuple(dict.fromkeys(path.resolve() for path in found if path.suffix == ".py" and path.is_file()))


def lint_files(files: tuple[Path, ...]) -> tuple[Finding, ...]:
    """What lint finds in them."""
    found: list[Finding] = []
    for path in files:
        found += lint_source(path.read_text(encoding="utf-8", errors="replace"), str(path))
    return tuple(found)
