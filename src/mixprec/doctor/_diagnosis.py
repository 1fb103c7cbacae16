"""What an examination came to: one record that the terminal, the JSON document and the page render."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec.doctor._arm import Examination
from mixprec.records import Evidence, Severity, Verdict

__all__ = ["Diagnosis", "Patch"]


@dataclass(frozen=True)
class Patch:
    """A change to the script that was tried: the smallest part in float32 that makes it work, or a lint fix.

    `diff` is in unified format; `helped` says that the arm of the name `arm`, in which the change was in place, ran
    without the failure; `about` says in words what it does.
    """

    about: str
    diff: str
    arm: str
    helped: bool


@dataclass(frozen=True)
class Diagnosis:
    """`verdicts` are ranked, the first is the cause that matters most; none and `problem` None: nothing is wrong.

    `problem` says why the script could not be judged: its own error in every arm (with its traceback), or what kept it
    from running. `looked_at` is what "nothing wrong" rests on. `interrupted`: Ctrl-C ended the examination early, and
    what is here comes from the arms until then. `open_question` is the experiment that would decide where the run
    failed and no cause was found.
    """

    examination: Examination
    verdicts: tuple[Verdict, ...] = ()
    problem: str | None = None
    patch: Patch | None = None
    looked_at: tuple[Evidence, ...] = ()
    interrupted: bool = False
    open_question: str | None = None
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict | None:
        """The cause that matters most; None where nothing is wrong or nothing could be judged."""
        return self.verdicts[0] if self.verdicts else None

    @property
    def healthy(self) -> bool:
        """Whether the script ran and nothing that matters was found."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 nothing wrong, 1 a verdict or a failure that no cause explains, 2 could not run."""
        if any(verdict.severity is not Severity.INFO for verdict in self.verdicts):
            return 1
        return 2 if self.problem is not None else 1 if self.open_question is not None else 0
