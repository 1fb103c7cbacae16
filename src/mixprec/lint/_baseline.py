"""A baseline is what was found on the day the linter was introduced; only what is not in it counts.

A finding is recognised by its file, its code and the text of its line without white space at the ends, never by its
line number, so edits elsewhere in the file do not bring old findings back. Equal lines are counted.
"""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mixprec.errors import InvalidValueError
from mixprec.records import SCHEMA, Finding

__all__ = ["Baseline", "Entry", "read_baseline"]


@dataclass(frozen=True, order=True)
class Entry:
    """What a finding is recognised by. `file` is relative to the configuration's folder; `text` is its line."""

    file: str
    code: str
    text: str

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that stay the same as long as file, code and text do."""
        return hashlib.sha256("\0".join((self.file, self.code, self.text)).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Baseline:
    """How many findings of each kind are known."""

    counts: Mapping[Entry, int]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Baseline:
        """The baseline in which exactly these findings are known."""
        return cls(collections.Counter(entries))

    def new(self, found: Iterable[tuple[Entry, Finding]]) -> tuple[Finding, ...]:
        """The findings that are not known: of equal ones, those beyond the known number."""
        left = collections.Counter(self.counts)
        fresh: list[Finding] = []
        for entry, finding in found:
            if left[entry] > 0:
                left[entry] -= 1
            else:
                fresh.append(finding)
        return tuple(fresh)

    def gone(self, found: Iterable[Entry], files: frozenset[str]) -> int:
        """How many known findings in `files`, those that were linted, are no longer found."""
        left = collections.Counter({entry: count for entry, count in self.counts.items() if entry.file in files})
        left.subtract(collections.Counter(found))
        return sum(count for count in left.values() if count > 0)

    def dumps(self) -> str:
        """The text of a baseline file: sorted, one entry per finding kind, readable in a review."""
        entries = [
            {"file": entry.file, "code": entry.code, "text": entry.text, "count": count}
            for entry, count in sorted(self.counts.items())
        ]
        return json.dumps({"schema": SCHEMA, "baseline": entries}, indent=1, ensure_ascii=False) + "\n"


def read_baseline(file: Path) -> Baseline:
    """The baseline in `file`.

    Raises:
        InvalidValueError: the file is not there, is no JSON, or is no baseline of a version that is known.

    """
    advice = "`mixprec lint --write-baseline` writes it anew."
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"baseline {file}", str(error), "a readable baseline file", advice) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InvalidValueError(f"baseline {file}", document, f"a baseline with schema {SCHEMA}", advice)
    try:
        counts = {
            Entry(str(entry["file"]), str(entry["code"]), str(entry["text"])): int(entry["count"])
            for entry in document["baseline"]
        }
    except (KeyError, TypeError, ValueError) as error:
        accepted = "a list of entries with file, code, text and count"
        raise InvalidValueError(f"baseline {file}", repr(error), accepted, advice) from error
    return Baseline(counts)
