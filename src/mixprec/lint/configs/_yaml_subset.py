"""Block mappings of scalars, nested by indentation: the YAML that launchers write for themselves.

Lists, flow collections, anchors and block text are passed over; a text that is no YAML gives what could be read of it.
Nothing raises. A parser for all of YAML would be a dependency that one file in a hundred needs.
"""

from __future__ import annotations

import re

from mixprec.lint._json_spans import Node

__all__ = ["parse_yaml"]

_ENTRY = re.compile(
    r"""(?P<indent>\ *)(?P<key>"[^"]*"|'[^']*'|[^\s#'"\-\[{][^:#]*?)\ *:(?:\ +|$)
    (?P<value>"(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^\s#"'](?:[^#]|(?<!\s)\#)*?)?\ *(?:(?<=\ )\#.*)?$""",
    re.VERBOSE,
)
_LINE = re.compile(r"[^\r\n]*")
_PLAIN = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "null": None, "~": None}


def parse_yaml(text: str) -> Node:
    """The mapping in `text` with the place of every value; quoted words stay strings, `no` and `off` are false."""
    root = Node({}, 0, len(text))
    open_maps: list[tuple[int, Node]] = [(-1, root)]
    for line in _LINE.finditer(text):
        entry = _ENTRY.fullmatch(line[0])
        if entry is None:
            continue
        indent = len(entry["indent"])
        while open_maps[-1][0] >= indent:
            open_maps.pop()
        start, end = entry.span("value") if entry["value"] else entry.span("key")
        node = Node(_scalar(entry["value"]), line.start() + start, line.start() + end)
        open_maps[-1][1].value[_unquoted(entry["key"])] = node
        if entry["value"] is None:
            node = Node({}, node.start, node.end)
            open_maps[-1][1].value[_unquoted(entry["key"])] = node
            open_maps.append((indent, node))
    return root


def _scalar(value: str | None) -> object:
    if value is None:
        return None
    if value[0] in "\"'":
        return _unquoted(value)
    if value.lower() in _PLAIN:
        return _PLAIN[value.lower()]
    try:
        return float(value) if re.search(r"[.eE]", value) else int(value)
    except ValueError:
        return value


def _unquoted(text: str) -> str:
    if text[:1] not in ("'", '"') or text[:1] != text[-1:]:
        return text
    return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
