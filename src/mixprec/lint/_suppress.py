"""A comment silences findings of its statement; what silences nothing is itself reported.

```python
clip_grad_norm_(model.parameters(), 1.0)  # mixprec: ignore[MP002] the scaler is off here
# mixprec: ignore[MP002, MP003]           <- alone on its line: the next statement
# mixprec: ignore                         <- without codes: everything
# mixprec: ignore-file[MP022] test data   <- anywhere in the file: the whole file
```
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mixprec.errors import UnknownNameError
from mixprec.lint._config import expand
from mixprec.lint._lines import Lines
from mixprec.records import Edit, Finding, Fix, Location, Severity

__all__ = ["UNUSED", "Ignore", "Sifted", "find_ignores", "sift"]

UNUSED = "MP290"
"""The code of an ignore comment that silences nothing."""

_MARK = "mixprec:"
_COMMENT = re.compile(
    r"#\s*mixprec:\s*(?P<verb>ignore(?:-file)?)\b(?P<codes>\s*\[[^\]]*\])?(?P<broken>\s*\[)?[\s:]*(?P<reason>[^#]*)"
)


@dataclass(frozen=True)
class Ignore:
    """One ignore comment: the lines and codes that it covers. No codes means all; no lines means the whole file."""

    comment: Location
    text: str
    lines: range | None
    codes: frozenset[str] | None
    reason: str = ""
    error: str = ""

    def covers(self, finding: Finding) -> bool:
        """Whether it silences this finding."""
        if self.error or (self.codes is not None and finding.code not in self.codes):
            return False
        line = finding.location.line
        return self.lines is None or (line is not None and line in self.lines)


@dataclass(frozen=True)
class Sifted:
    """What is left of the findings, how many were silenced, and the comments that silenced nothing."""

    kept: tuple[Finding, ...]
    silenced: int
    unused: tuple[Finding, ...]


def sift(findings: Sequence[Finding], source: str, codes: frozenset[str]) -> Sifted:
    """Findings without those that a comment in `source` silences.

    A comment is unused when it covers no finding and every code that it names was among `codes`, those looked for.
    """
    ignores = find_ignores(source)
    kept = tuple(finding for finding in findings if not any(ignore.covers(finding) for ignore in ignores))
    idle = (ignore for ignore in ignores if not any(ignore.covers(finding) for finding in findings))
    unused = tuple(_unused(ignore, source) for ignore in idle if _was_looked_for(ignore, codes))
    return Sifted(kept, len(findings) - len(kept), unused if UNUSED in codes else ())


def _was_looked_for(ignore: Ignore, codes: frozenset[str]) -> bool:
    return bool(ignore.error) or ignore.codes is None or ignore.codes <= codes


def _unused(ignore: Ignore, source: str) -> Finding:
    named = "" if not ignore.codes else f" of {', '.join(sorted(ignore.codes))}"
    message = ignore.error or f"this comment silences nothing: no finding{named} stands here"
    edit = None if ignore.error else _removal(ignore, source)
    fix = None if edit is None else Fix("Remove the comment.", safe=True, edits=(edit,))
    severity = Severity.WARNING if ignore.error else Severity.INFO  # a misspelt one does not do what it was written for
    return Finding(UNUSED, "unused-ignore", severity, message, ignore.comment, fix=fix)


def _removal(ignore: Ignore, source: str) -> Edit:
    """Delete the comment, with its line where nothing else stands on it."""
    lines = Lines(source)
    line, column = ignore.comment.line or 1, ignore.comment.column or 1
    before = lines.line(line)[: column - 1]
    after = lines.line(line)[column - 1 + len(ignore.text) :]
    if not before.strip() and not after.strip():
        return Edit(line, 1, line + 1, 1, "")
    return Edit(line, len(before.rstrip()) + 1, line, column + len(ignore.text), "")


def find_ignores(source: str) -> tuple[Ignore, ...]:
    """The ignore comments of a source text, in order. **Cost**: one search where there is none."""
    if _MARK not in source:
        return ()
    return tuple(_read(comment, lines) for comment, lines in _comments(source))


@dataclass(frozen=True)
class _Comment:
    text: str
    line: int
    column: int


def _read(comment: _Comment, lines: range) -> Ignore:
    match = _COMMENT.search(comment.text)
    if match is None:
        error = 'this looks like an ignore comment but is none; write "# mixprec: ignore[MP002] reason"'
        return Ignore(_location(comment, comment.text, 0), comment.text, lines, None, error=error)
    text = match[0].rstrip()
    where = _location(comment, text, match.start())
    ignore = Ignore(where, text, None if match["verb"] == "ignore-file" else lines, None, match["reason"].strip())
    if match["broken"] and not match["codes"]:
        return replace(ignore, error="the list of codes is not closed; write ignore[MP002]")
    return ignore if match["codes"] is None else _with_codes(ignore, match["codes"].strip()[1:-1])


def _with_codes(ignore: Ignore, listed: str) -> Ignore:
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if not names:
        return replace(ignore, error="the list of codes is empty; name a code or leave out the brackets")
    try:
        return replace(ignore, codes=frozenset(_code(name) for name in names))
    except UnknownNameError as error:
        hint = f"; did you mean {' or '.join(error.suggestions)}?" if error.suggestions else ""
        return replace(ignore, error=f"{error.value!r} is no known code{hint}")


def _code(name: str) -> str:
    """The code that `name` is or names; a beginning of codes would hide more than its writer saw."""
    codes = expand([name])
    if len(codes) == 1:
        return next(iter(codes))
    raise UnknownNameError("code", name, codes)


def _location(comment: _Comment, text: str, start: int) -> Location:
    column = comment.column + start
    return Location(line=comment.line, column=column, end_line=comment.line, end_column=column + len(text))


def _comments(source: str) -> Iterator[tuple[_Comment, range]]:
    """Comments that speak to us, each with the lines of the statement that it stands in or before."""
    pending: list[_Comment] = []
    first = 0
    for token in _tokens(source):
        if token.type == tokenize.COMMENT and _is_ours(token.string):
            pending.append(_Comment(token.string, token.start[0], token.start[1] + 1))
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            last = token.start[0]
            yield from ((comment, _span(comment, first or last, last)) for comment in pending)
            pending, first = [], 0
        elif token.type not in _LAYOUT and not first:
            first = token.start[0]
    yield from ((comment, range(comment.line, comment.line + 1)) for comment in pending)


def _is_ours(comment: str) -> bool:
    """Whether a comment is an ignore comment, or was meant to be one."""
    match = re.search(r"#\s*mixprec:\s*([\w-]+)", comment)
    return match is not None and bool(difflib.get_close_matches(match[1], ["ignore", "ignore-file"]))


_LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING})


def _span(comment: _Comment, first: int, last: int) -> range:
    return range(min(comment.line, first), last + 1)


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens up to where the text stops being Python."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(source, newline="").readline)
    except (tokenize.TokenError, SyntaxError):
        return
