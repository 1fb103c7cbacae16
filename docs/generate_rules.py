"""Write a page for every cause and the table in docs/lint.md; with --check, only tell which are out of date.

A cause's file and its rules' files are the source; nothing on these pages is written by hand.

Run: python docs/generate_rules.py [--check]
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mixprec.causes import Cause, Where, all_causes, find_cause
from mixprec.lint import CRASHED, UNREADABLE, FixSafety, all_rules
from mixprec.lint._suppress import UNUSED
from mixprec.lint.configs import config_rules

DOCS = Path(__file__).parent
CASES = DOCS.parent / "tests" / "doctor" / "cases"
BEGIN, END = "<!-- table of rules: begin -->", "<!-- table of rules: end -->"
OWN_CODES = {UNUSED: "info", UNREADABLE: "error", CRASHED: "info"}
"""Codes that the linter reports about itself; they have no rule."""

SEEN_BY = {
    Where.LINT: "`mixprec lint`, without running anything",
    Where.RUN: "a run (`mixprec doctor`, `mixprec run` or `mixprec audit`)",
    Where.CONTROL: "a control run in another precision (`mixprec doctor`)",
}

SAFETY = {
    FixSafety.SAFE: "Safe: it is a strict bug fix, and `mixprec lint --fix` applies it.",
    FixSafety.PROMPT: "Look twice: `--diff` shows it and `--fix --unsafe-fixes` applies it, where it has edits.",
    FixSafety.NONE: "None: what is right depends on what is meant.",
}


@dataclass(frozen=True)
class Section:
    """What one rule contributes to the page of its code."""

    name: str
    severity: str
    title: str
    why: str
    bad: str
    good: str
    language: str
    safety: FixSafety
    sources: tuple[str, ...]


def sections() -> dict[str, list[Section]]:
    """Code to the sections of its page, by code."""
    found: dict[str, list[Section]] = {}
    for rule in all_rules():
        words = (rule.name, rule.severity.value, rule.title, rule.why, rule.bad, rule.good, "python")
        found.setdefault(rule.code, []).append(Section(*words, rule.fix_safety, rule.sources))
    for config in config_rules():
        language = "json" if config.example.endswith(".json") else "yaml"
        texts = (config.name, config.severity.value, config.title, config.why, config.bad, config.good, language)
        found.setdefault(config.code, []).append(Section(*texts, FixSafety.NONE, config.sources))
    return dict(sorted(found.items()))


def page(cause: Cause, parts: list[Section]) -> str:
    """The page of one code."""
    headings = (
        ["What it finds"]
        if len(parts) == 1
        else [f"{part.name}, {n} of {len(parts)}" for n, part in enumerate(parts, start=1)]
    )
    middle = [line for part, heading in zip(parts, headings, strict=True) for line in _part(part, heading)]
    lines = [f"# {cause.code} {cause.name}", "", *_head(cause), *middle, *_in_a_run(cause), *_foot(cause, parts)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(cause: Cause) -> Iterator[str]:
    yield from (cause.title, "", f"**Symptom.** {cause.symptom}", "")
    yield from (f"**Told by.** {cause.evidence}", "", f"**Fix.** {cause.fix}", "")
    yield from (f"**Seen by.** {', '.join(SEEN_BY[where] for where in cause.where)}.", "")
    says = {"silent": "says nothing", "warns": "warns", "raises": "raises an error"}[cause.raises]
    yield from (f"When this happens, PyTorch {says}.", "")


def _part(part: Section, heading: str) -> Iterator[str]:
    yield from (f"## {heading}", "", f"{_sentence(part.title)} Severity: {part.severity}.", "")
    yield from (f"**Why it is bad.** {part.why.strip()}", "")
    yield from ("**Instead of**", "", f"```{part.language} bad", part.bad.strip("\n"), "```", "")
    yield from ("**write**", "", f"```{part.language} good", part.good.strip("\n"), "```", "")
    yield from (f"**Fix.** {SAFETY[part.safety]}", "")


def _in_a_run(cause: Cause) -> Iterator[str]:
    """The doctor's examples: scripts with the fault, as a change to the script without it; tests run both."""
    folders = sorted(CASES.glob(f"{cause.code.lower()}_*"))
    if folders:
        yield from ("## What the doctor finds", "")
    for folder in folders:
        bad, good = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("bad.py", "good.py"))
        clean = [line.removesuffix("  # FAULT") for line in bad]
        story = clean[0].strip('"')
        change = list(difflib.unified_diff(clean, good, lineterm="", n=3))[2:]
        yield from (f"{_sentence(story)} The change that repairs `tests/doctor/cases/{folder.name}/bad.py`:", "")
        yield from ("```diff", *change, "```", "")


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _foot(cause: Cause, parts: list[Section]) -> Iterator[str]:
    if Where.LINT in cause.where or cause.code in OWN_CODES:
        yield from ("## How to silence it", "", *_silence(cause.code), "")
    sources = dict.fromkeys([*(link for part in parts for link in part.sources), *cause.sources])
    if sources:
        yield from ("## Sources", "", *(f"- <{link}>" for link in sources), "")
    if cause.related:
        names = [f"[{code} {find_cause(code).name}]({code}.md)" for code in cause.related]
        yield f"Easily mistaken for it: {', '.join(names)}."


def _silence(code: str) -> Iterator[str]:
    yield f"One statement: `# mixprec: ignore[{code}] why`. One file: `# mixprec: ignore-file[{code}] why`."
    yield f'Everywhere: `ignore = ["{code}"]` under `[tool.mixprec.lint]` in `pyproject.toml`.'


def table() -> str:
    """The table of all rules, by code."""
    rows = ["| code | name | what it finds | severity | fix |", "| --- | --- | --- | --- | --- |"]
    for code, parts in sections().items():
        for part in parts:
            fix = "" if part.safety is FixSafety.NONE else part.safety.value
            rows.append(
                f"| [{code}](rules/{code}.md) | {part.name} | {_sentence(part.title)} | {part.severity} | {fix} |"
            )
    for code, severity in OWN_CODES.items():
        cause = find_cause(code)
        fix = "safe" if code == UNUSED else ""
        rows.append(f"| [{code}](rules/{code}.md) | {cause.name} | {cause.title} | {severity} | {fix} |")
    return "\n".join(rows)


def outputs() -> dict[Path, str]:
    """Every generated file and its text."""
    pages = {DOCS / "rules" / f"{code}.md": page(find_cause(code), parts) for code, parts in sections().items()}
    for cause in all_causes():
        pages.setdefault(DOCS / "rules" / f"{cause.code}.md", page(cause, []))
    manual = (DOCS / "lint.md").read_text(encoding="utf-8")
    before, _, rest = manual.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {**pages, DOCS / "lint.md": f"{before}{BEGIN}\n{table()}\n{END}{after}"}


def stale() -> list[Path]:
    """Files whose text differs from what would be written, and pages of rules that are no more."""
    wanted = outputs()
    different = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return sorted([*different, *(path for path in (DOCS / "rules").glob("*.md") if path not in wanted)])


def write() -> None:
    """Bring every file up to date."""
    wanted = outputs()
    for path in stale():
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()


def main(arguments: list[str]) -> int:
    """Write, or tell what is out of date; the number is the exit code."""
    if "--check" not in arguments:
        write()
        return 0
    for path in stale():
        print(f"out of date: {path.relative_to(DOCS.parent)}; run python docs/generate_rules.py")
    return 1 if stale() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
