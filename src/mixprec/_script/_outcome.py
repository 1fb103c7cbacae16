"""How a run of a script ended."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """`returncode` is the script's own exit code, negative where a signal ended it (also our own, see `timed_out`).

    `output` is what it wrote to stdout and stderr, in order: all of it, or its head and tail around a line that says
    how many bytes were left out; empty where the output went to the terminal. `stopped` says that `until` ended it,
    `errors` are tracebacks of entries that failed (the script went on without them), `seconds` is wall time.
    """

    returncode: int
    seconds: float
    output: str = ""
    timed_out: bool = False
    stopped: bool = False
    errors: tuple[str, ...] = ()

    @property
    def output_tail(self) -> str:
        """The last 40 lines of `output`."""
        return "\n".join(self.output.splitlines()[-40:])
