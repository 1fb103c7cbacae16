"""How often is the linter wrong about code that works? Every finding in widely used repositories is read and judged.

python -m benchmarks.lint_corpus FOLDER

FOLDER holds checkouts named owner+name, each with its commit in a file `.commit` (or in its own git history). Findings
are joined with the verdicts in benchmarks/data/lint_corpus.json; what nobody has judged yet is printed. With --record,
the findings and verdicts go back into that file and docs/lint-corpus.md is written from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mixprec.lint._config import LintConfig
from mixprec.lint._files import Discovery, discover
from mixprec.lint._lint_file import FileResult
from mixprec.lint._run import run
from mixprec.lint._words import AMP_WORDS, mentions

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "data" / "lint_corpus.json"
PAGE = ROOT / "docs" / "lint-corpus.md"
SCHEMA = 1
UNREAD = "MP298"
"""The finding that a text is no Python says nothing about a rule; it is counted by itself."""


@dataclass(frozen=True)
class Repository:
    """A checkout: what was read of it. `files` are scripts, notebooks and configuration, `speaking` those among them
    that mention mixed precision; `info` counts the findings below a warning, `unread` the files that are no Python.
    """

    repository: str
    commit: str
    files: int
    speaking: int
    info: int
    unread: int


@dataclass(frozen=True)
class Judged:
    """A finding of a repository and what a reader made of it: `right`, `wrong`, or nothing yet (an empty verdict).

    `hash` is that of the line without its indentation, so that a verdict never passes to other code.
    """

    repository: str
    path: str
    code: str
    name: str
    severity: str
    line: int
    hash: str
    cell: int | None = None
    verdict: str = ""
    reason: str = ""

    @property
    def place(self) -> tuple[Any, ...]:
        """What a verdict is about."""
        return self.repository, self.path, self.cell or 0, self.line, self.code, self.name, self.hash


@dataclass(frozen=True)
class Corpus:
    """All repositories and all findings in them."""

    repositories: tuple[Repository, ...]
    findings: tuple[Judged, ...]

    def count(self, verdict: str, severity: str | None = None, repository: str | None = None) -> int:
        """How many findings have this verdict."""
        return sum(
            finding.verdict == verdict
            and severity in (None, finding.severity)
            and repository in (None, finding.repository)
            for finding in self.findings
        )

    def precision(self, severity: str | None = None) -> float:
        """The share of right findings among those judged; 1 where there are none."""
        right, wrong = self.count("right", severity), self.count("wrong", severity)
        return right / (right + wrong) if right + wrong else 1.0


def load(path: Path = DATA) -> Corpus:
    """What is stored."""
    if not path.exists():
        return Corpus((), ())
    stored = json.loads(path.read_text(encoding="utf-8"))
    return Corpus(
        tuple(Repository(**row) for row in stored["repositories"]), tuple(Judged(**row) for row in stored["findings"])
    )


def dump(corpus: Corpus, path: Path = DATA) -> None:
    """Store `corpus`, one finding a line."""
    repositories = ",\n".join(f"  {json.dumps(asdict(each))}" for each in corpus.repositories)
    findings = ",\n".join(f"  {json.dumps(asdict(each), ensure_ascii=False)}" for each in corpus.findings)
    text = f'{{"schema": {SCHEMA},\n "repositories": [\n{repositories}\n ],\n "findings": [\n{findings}\n ]}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lint(folder: Path, known: Iterable[Judged], jobs: int | None = None) -> Corpus:
    """What is found in every checkout in `folder`, with the verdicts of `known`."""
    verdicts = {finding.place: finding for finding in known}
    repositories: list[Repository] = []
    findings: list[Judged] = []
    for checkout in sorted(path for path in folder.iterdir() if path.is_dir()):
        repository, found = lint_checkout(checkout, jobs)
        repositories.append(repository)
        findings += [verdicts.get(finding.place, finding) for finding in found]
    return Corpus(tuple(repositories), tuple(sorted(findings, key=lambda finding: finding.place)))


def lint_checkout(checkout: Path, jobs: int | None = None) -> tuple[Repository, list[Judged]]:
    """One repository, as it is with the linter's defaults."""
    files = discover([checkout], Discovery(checkout))
    report = run(files, LintConfig(checkout), jobs=jobs)
    name = checkout.name.replace("+", "/", 1)
    found = [judged for result in report.results for judged in _unjudged(name, checkout, result)]
    read = [finding for finding in found if finding.code != UNREAD]
    speaking = sum(map(_speaks_of_precision, files))
    return Repository(name, _commit(checkout), len(files), speaking, report.below, len(found) - len(read)), read


def _unjudged(repository: str, checkout: Path, result: FileResult) -> Iterator[Judged]:
    path = Path(result.path).relative_to(checkout).as_posix()
    for finding in result.findings:
        where, text = finding.location, result.line(finding.location)
        yield Judged(
            repository,
            path,
            finding.code,
            finding.name,
            finding.severity.value,
            where.line or 0,
            line_hash(text),
            where.cell,
        )


def line_hash(text: str) -> str:
    """By what a line is recognised without quoting it."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def _speaks_of_precision(file: Path) -> bool:
    text = file.read_bytes().decode("latin-1")
    return mentions(text, AMP_WORDS)


def _commit(checkout: Path) -> str:
    note = checkout / ".commit"
    if note.exists():
        return note.read_text(encoding="utf-8").strip()
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# --- the page

HEAD = """\
# What lint says about code that works

A linter that cries wolf is switched off. So the linter, with its defaults, was run over {repositories} public
repositories that are in wide use: trainers of classification, detection, segmentation, diffusion, speech and language
models, and the frameworks under them. Every warning and error was read in its source, its helpers included, and
judged: *right* where the code has the named misuse on the named path, whether or not it bites there; *wrong* where it
does not. Findings below a warning are not reported by default and were not judged.

Rules were mended where this reading found them wrong, so the precision below is that on code which the rules have
seen; expect less on other code.

| | findings | right | wrong | precision |
| --- | --: | --: | --: | --: |
{totals}

{read} files were read; {speaking} of them mention mixed precision, and {unread} of those hold text that is no Python.
Nothing was executed, and nothing of these repositories is part of this one: a finding is kept as its place, a hash of
its line, and the verdict.

Read the verdicts again, or judge what has changed, with checkouts of the same commits in one folder, each named
`owner+name`:

```console
$ python -m benchmarks.lint_corpus FOLDER
```

## Repositories

| repository | commit | files | mention precision | errors | warnings | right | wrong | info, not judged |
| --- | --- | --: | --: | --: | --: | --: | --: | --: |
{rows}
"""

SECTIONS = (
    ("wrong", "Wrong", "What is claimed here is not so. Until the rule knows better, an ignore comment silences it."),
    ("right", "Right", "Several of these never bite where they stand; the misuse is there all the same."),
    ("", "Not judged yet", "Nobody has read these."),
)


def page(corpus: Corpus) -> str:
    """docs/lint-corpus.md, from what is stored alone."""
    head = HEAD.format(
        repositories=len(corpus.repositories),
        totals="\n".join(_totals(corpus)),
        read=f"{sum(each.files for each in corpus.repositories):,}",
        speaking=f"{sum(each.speaking for each in corpus.repositories):,}",
        unread=sum(each.unread for each in corpus.repositories),
        rows="\n".join(_row(corpus, each) for each in corpus.repositories),
    )
    return "\n".join([head, *(line for section in SECTIONS for line in _section(corpus, *section))]).rstrip("\n") + "\n"


def _totals(corpus: Corpus) -> Iterator[str]:
    for title, severity in (("errors", "error"), ("warnings", "warning"), ("both", None)):
        right, wrong = corpus.count("right", severity), corpus.count("wrong", severity)
        count = sum(severity in (None, finding.severity) for finding in corpus.findings)
        yield f"| {title} | {count} | {right} | {wrong} | {corpus.precision(severity):.2f} |"


def _row(corpus: Corpus, each: Repository) -> str:
    severities = [f.severity for f in corpus.findings if f.repository == each.repository]
    link = f"https://github.com/{each.repository}"
    cells = (
        f"[{each.repository}]({link})",
        f"[{each.commit[:7]}]({link}/tree/{each.commit})",
        each.files,
        each.speaking,
        severities.count("error"),
        severities.count("warning"),
        corpus.count("right", repository=each.repository),
        corpus.count("wrong", repository=each.repository),
        each.info,
    )
    return f"| {' | '.join(map(str, cells))} |"


def _section(corpus: Corpus, verdict: str, title: str, words: str) -> Iterator[str]:
    chosen = [finding for finding in corpus.findings if finding.verdict == verdict]
    if not chosen:
        return
    commits = {each.repository: each.commit for each in corpus.repositories}
    yield from (f"## {title}", "", words, "", "| finding | severity | place | because |", "| --- | --- | --- | --- |")
    for finding in chosen:
        code = f"[{finding.code}](rules/{finding.code}.md) {finding.name}"
        yield f"| {code} | {finding.severity} | {_link(finding, commits[finding.repository])} | {finding.reason} |"
    yield ""


def _link(finding: Judged, commit: str) -> str:
    place = f"{finding.repository}/{finding.path}"
    url = f"https://github.com/{finding.repository}/blob/{commit}/{finding.path}"
    if finding.cell is not None:
        return f"[{place}, cell {finding.cell}]({url})"
    return f"[{place}:{finding.line}]({url}#L{finding.line})"


def main(argv: Sequence[str] | None = None) -> int:
    """Lint, join, tell; the number of findings without a verdict decides about the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lint_corpus", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="checkouts, each named owner+name")
    parser.add_argument("--record", action="store_true", help="write the data and the page")
    parser.add_argument("--jobs", type=int, help="processes; by default one per CPU")
    options = parser.parse_args(argv)
    corpus = lint(options.folder, load().findings, options.jobs)
    open_ones = [finding for finding in corpus.findings if not finding.verdict]
    for finding in open_ones:
        print(f"{finding.repository}/{finding.path}:{finding.line}: {finding.severity} {finding.code} {finding.name}")
    print(*_totals(corpus), sep="\n")
    print(f"{len(open_ones)} findings are not judged yet.")
    if options.record:
        dump(corpus)
        PAGE.write_text(page(corpus), encoding="utf-8")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
