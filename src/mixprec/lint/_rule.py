"""A rule is one file: its code, its reasons, its examples and its check; the examples are its tests and its page."""

from __future__ import annotations

import abc
import ast
import enum
from collections.abc import Iterator
from typing import ClassVar

from mixprec.lint._view import FileView
from mixprec.lint._words import AMP_WORDS
from mixprec.records import Edit, Finding, Fix, Severity

__all__ = ["FixSafety", "Rule"]


class FixSafety(str, enum.Enum):
    """What may be done with a rule's fix: apply it unattended, show it as a diff, or there is none."""

    SAFE = "safe"
    PROMPT = "prompt"
    NONE = "none"


class Rule(abc.ABC):
    """One kind of finding.

    `code` is `MP` and three digits, `name` kebab-case, `title` one line, `why` plain sentences. `bad` yields exactly
    one code, this one; `good` yields nothing from any rule; where `fix_safety` is safe, applying the fix of `bad`
    gives `good`. `words`: the rule is asked only about files that hold one of them. `requirements` is what the
    project of the examples requires (lines as in requirements.txt), for rules that depend on versions.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    title: ClassVar[str]
    why: ClassVar[str]
    bad: ClassVar[str]
    good: ClassVar[str]
    fix_safety: ClassVar[FixSafety] = FixSafety.NONE
    sources: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[tuple[str, ...]] = AMP_WORDS
    requirements: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def check(self, view: FileView) -> Iterator[Finding]:
        """What this rule finds in `view`, in any order."""

    def finding(
        self,
        view: FileView,
        node: ast.AST,
        message: str,
        *,
        fix: Fix | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule at `node`, with the rule's severity unless this one deserves another."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=self.severity if severity is None else severity,
            message=message,
            location=view.location(node),
            fix=fix,
        )

    def fix(self, text: str, *edits: Edit | None) -> Fix:
        """A fix in words, with its edits where every one of them could be made."""
        made = tuple(edit for edit in edits if edit is not None)
        complete = bool(edits) and len(made) == len(edits)
        return Fix(text, safe=complete and self.fix_safety is FixSafety.SAFE, edits=made if complete else ())
