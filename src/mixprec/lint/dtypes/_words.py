"""How findings speak of a tensor: its dtype, and where it got it."""

from __future__ import annotations

import ast

from mixprec.lint._view import FileView
from mixprec.lint.dtypes._dtypes import Dtypes
from mixprec.lint.dtypes._values import Tensor

__all__ = ["dtype_words", "number_words", "short", "spoken"]

_LONGEST = 40


def dtype_words(dtypes: Dtypes) -> str:
    """`float16`, or `bfloat16 or float16` where the run decides."""
    return " or ".join(sorted(dtypes or {"of unknown dtype"}))


def spoken(tensor: Tensor) -> str:
    """`float16 (the autocast region of line 24)`."""
    return f"{dtype_words(tensor.dtypes)}{f' ({tensor.why})' if tensor.why else ''}"


def short(view: FileView, node: ast.AST) -> str:
    """The source of `node` on one line, cut where it is long."""
    text = " ".join(view.text(node).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def number_words(number: float) -> str:
    """A number as a person writes it."""
    return f"{number:g}"
