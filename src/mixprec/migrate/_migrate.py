"""A file is parsed once, moved in the order Apex, PyTorch, and written back with every other character as it was."""

from __future__ import annotations

import libcst as cst

from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.migrate._apex import migrate_apex
from mixprec.migrate._result import Migration, Refusal
from mixprec.migrate._torch_amp import migrate_torch_amp

__all__ = ["TARGETS", "migrate"]

TARGETS = ("torch", "mixprec")

_WORDS = ("amp", "autocast", "GradScaler")


def migrate(source: str, *, to: str = "torch", opt_level: str | None = None) -> Migration:
    """Move `source`, the text of a Python file, to current PyTorch or to mixprec.

    `torch.cuda.amp` and `torch.cpu.amp` become `torch.amp` or mixprec; `torch.amp` and `torch.autocast` become mixprec;
    Apex's `amp.initialize`, `amp.scale_loss` and kin become either. What is not understood is left as it is and listed
    in `refusals`; of a file that uses Apex either all of it is understood or none of it is moved.

    Args:
        source: the text.
        to: `"torch"` or `"mixprec"`.
        opt_level: what Apex's `opt_level` is where the file does not say it literally, such as `"O1"`.

    Raises: UnknownNameError for another target; InvalidValueError for what is no Python.

    **Cost**: about a second for a thousand lines, most of it to resolve names; a file without one of the words costs
    nothing.
    """
    if to not in TARGETS:
        raise UnknownNameError("to", to, TARGETS)
    if not any(word in source for word in _WORDS):
        return Migration(source, source)
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise InvalidValueError("source", f"line {error.raw_line}", "a Python file", error.message) from error
    moved, refusals, notes = migrate_apex(module, to, opt_level) if "apex" in source else (module, [], [])
    moved, more = migrate_torch_amp(moved, to)
    return Migration(source, moved.code, tuple(sorted({*refusals, *more}, key=_by_line)), tuple(sorted(notes)))


def _by_line(refusal: Refusal) -> tuple[int, str]:
    return refusal.line, refusal.what
