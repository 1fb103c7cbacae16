"""A JSON document with the place of every value, so that a finding can point at it and an edit can replace only it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # the C scanner behind json.loads; typeshed leaves it out
from typing import Any

__all__ = ["JsonError", "Node", "parse"]

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity")
DEPTH_LIMIT = 200
"""Nesting beyond this is refused rather than left to the interpreter's own limit."""


class JsonError(Exception):
    """The text is no JSON. `offset` is where that shows."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True)
class Node:
    """A value and the offsets at which its text starts and ends. `value` holds Nodes inside lists and dicts."""

    value: Any
    start: int
    end: int

    def get(self, *keys: str) -> Node | None:
        """The value under `keys`, going into objects; None where there is none."""
        node: Node | None = self
        for key in keys:
            node = node.value.get(key) if node is not None and isinstance(node.value, dict) else None
        return node

    def items(self) -> Iterator[Node]:
        """The members of a list; nothing where this is no list."""
        return iter(self.value if isinstance(self.value, list) else ())

    def plain(self) -> Any:
        """The value as `json.loads` would give it."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def parse(text: str) -> Node:
    """The document in `text`.

    Raises:
        JsonError: the text is no JSON, or is nested deeper than `DEPTH_LIMIT`.

    """
    node = _value(text, _skip(text, 0), 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise JsonError("more text after the document's end", end)
    return node


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEPTH_LIMIT:
        raise JsonError(f"nested deeper than {DEPTH_LIMIT} levels", at)
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    if first == '"':
        value, end = _string(text, at)
        return Node(value, at, end)
    match = _SCALAR.match(text, at)
    if match is None:
        raise JsonError("a value is expected here", at)
    return Node(json.loads(match[0]), at, match.end())


def _object(text: str, start: int, depth: int) -> Node:
    members: dict[str, Node] = {}
    at = _skip(text, start + 1)
    if text.startswith("}", at):
        return Node(members, start, at + 1)
    while True:
        key, at = _string(text, at)
        at = _expect(text, _skip(text, at), ":")
        node = _value(text, _skip(text, at), depth + 1)
        members[key] = node
        at, more = _separator(text, node.end, "}")
        if not more:
            return Node(members, start, at)


def _array(text: str, start: int, depth: int) -> Node:
    items: list[Node] = []
    at = _skip(text, start + 1)
    if text.startswith("]", at):
        return Node(items, start, at + 1)
    while True:
        node = _value(text, at, depth + 1)
        items.append(node)
        at, more = _separator(text, node.end, "]")
        if not more:
            return Node(items, start, at)


def _separator(text: str, at: int, close: str) -> tuple[int, bool]:
    """Where the next member begins and that there is one, or where the container ends."""
    at = _skip(text, at)
    if text.startswith(close, at):
        return at + 1, False
    return _skip(text, _expect(text, at, ",")), True


def _string(text: str, at: int) -> tuple[str, int]:
    _expect(text, at, '"')
    try:
        value, end = scanstring(text, at + 1, False)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.pos) from error
    return value, end


def _expect(text: str, at: int, mark: str) -> int:
    if not text.startswith(mark, at):
        raise JsonError(f"{mark!r} is expected here", at)
    return at + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
