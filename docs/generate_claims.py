"""Write the table of verdicts into docs/claims.md from its own headings.

Run: python docs/generate_claims.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from generated import between, run

PAGE = Path(__file__).parent / "claims.md"
VERDICTS = ("True when", "True", "False")


@dataclass(frozen=True)
class Claim:
    """One claim: its words, its verdict (None where the page gives none) and the text and code below it."""

    words: str
    verdict: str | None
    body: str

    @property
    def anchor(self) -> str:
        """What Markdown renderers make of the heading."""
        return re.sub(r"[^\w\- ]", "", self.words.lower()).replace(" ", "-")


def claims(text: str) -> list[Claim]:
    """Every claim of a page, in order."""
    parts = re.split(r"^### (.+)\n", re.sub(r"^## .*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    return [Claim(words, _verdict(body), body) for words, body in zip(parts[1::2], parts[2::2], strict=True)]


def _verdict(body: str) -> str | None:
    return next((verdict for verdict in VERDICTS if body.lstrip().startswith(f"**{verdict}")), None)


def table(text: str) -> str:
    """All claims with their verdicts."""
    rows = [f"| [{claim.words}](#{claim.anchor}) | {claim.verdict} |" for claim in claims(text)]
    return "\n".join(["| claim | verdict |", "| --- | --- |", *rows])


def outputs() -> Mapping[Path, str]:
    """The page with its table."""
    text = PAGE.read_text(encoding="utf-8")
    return {PAGE: between(text, "verdicts", table(text))}


if __name__ == "__main__":
    sys.exit(run(outputs, sys.argv[1:]))
