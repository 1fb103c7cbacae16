"""Bytes become text the way Python reads source, and text becomes the same bytes again.

A byte-order mark and a coding line (PEP 263) are obeyed. Where neither stands and the bytes are no UTF-8, they are
read as Latin-1: Python 3 refuses such files, but they are common among older scripts and can be linted all the same.
"""

from __future__ import annotations

import codecs
import io
import tokenize
from dataclasses import dataclass

__all__ = ["Decoded", "UnreadableError", "decode"]

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class UnreadableError(Exception):
    """These bytes are no source text. The message says why; `line` is where, when that is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message)


@dataclass(frozen=True)
class Decoded:
    """A source text and how it is stored."""

    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """`text` in the same encoding.

        Raises:
            UnreadableError: the encoding has no code for one of the characters.

        """
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise UnreadableError(f"{text[error.start]!r} cannot be written in {self.encoding}") from error
        return codecs.BOM_UTF8 + data if self.bom else data


def decode(data: bytes) -> Decoded:
    """`data` as text.

    Raises:
        UnreadableError: UTF-16, null bytes, an unknown or a contradictory coding line, or bytes that do not fit it.

    """
    if data.startswith(_UTF16):
        raise UnreadableError("the file is UTF-16, which Python does not read; save it as UTF-8")
    if b"\0" in data:
        raise UnreadableError(
            "the file holds null bytes, so it is no Python source", data.count(b"\n", 0, data.index(b"\0")) + 1
        )
    bom = data.startswith(codecs.BOM_UTF8)
    encoding, declared = _encoding(data)
    body = data[len(codecs.BOM_UTF8) :] if bom else data
    try:
        return Decoded(body.decode(encoding), encoding, bom)
    except UnicodeDecodeError as error:
        if declared or bom:
            line = body.count(b"\n", 0, error.start) + 1
            raise UnreadableError(f"the bytes do not fit the encoding {encoding}: {error.reason}", line) from error
        return Decoded(body.decode("latin-1"), "latin-1", bom)


def _encoding(data: bytes) -> tuple[str, bool]:
    """The encoding, without the mark's own name, and whether the file declares it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        if _declares(data):
            raise UnreadableError(f"the coding line cannot be obeyed: {error.msg}", 1) from error
        return "utf-8", False
    return ("utf-8" if encoding == "utf-8-sig" else encoding), _declares(data)


def _declares(data: bytes) -> bool:
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n", 2)[:2]
    return any(line.lstrip().startswith(b"#") and b"coding" in line for line in lines)
