"""A notebook is one script: its code cells one after another, with IPython's own syntax made harmless.

Every line keeps its place in its cell, so a finding can be told as cell and line, and an edit can go back into the
cell without touching another byte of the file.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mixprec.lint._json_spans import JsonError, Node, parse
from mixprec.lint._lines import Lines

__all__ = ["Cell", "Notebook", "NotebookError", "neutralise", "read_notebook"]

PYTHON_CELL_MAGICS = frozenset({"capture", "prun", "time", "timeit"})
"""Cell magics whose body is Python that runs in this process."""

_MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:%|!|\?)")
_TIMED = re.compile(r"(?P<indent>[ \t]*)(?P<magic>%(?:time|timeit|prun)[ \t]+)(?P<python>[^-\s].*)")
_ASSIGNED_MAGIC = re.compile(r"(?P<target>[ \t]*[\w.,\[\] \t]+=[ \t]*)(?:%|!)")
_HELP = re.compile(r"(?P<indent>[ \t]*)[\w.*]+\?{1,2}[ \t]*$")


class NotebookError(Exception):
    """The file is no notebook. `offset` is where that shows, when it shows at one place."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True)
class Cell:
    """One code cell. `number` counts all cells from 1; `node` is its `source` in the file."""

    number: int
    text: str
    node: Node
    foreign: frozenset[int]
    """Lines (1-based, in the cell) that are not Python and were replaced."""
    python: str
    """The cell with these lines replaced; as many lines as `text`."""
    error: SyntaxError | None = None
    """Why the cell does not parse; its `python` then holds only empty lines."""


@dataclass(frozen=True)
class Notebook:
    """A notebook file: `raw` is its text, `cells` its code cells."""

    raw: str
    cells: tuple[Cell, ...]

    @property
    def source(self) -> str:
        """All cells as one script, each followed by a line end."""
        return "".join(cell.python + "\n" for cell in self.cells)

    def locate(self, line: int) -> tuple[Cell, int]:
        """The cell and the line in it (1-based) of a line of `source`; the last cell's for a line past the end.

        Raises:
            IndexError: the notebook has no code cell.

        """
        first = 1
        for cell in self.cells:
            count = len(Lines(cell.python))
            if line < first + count:
                return cell, line - first + 1
            first += count
        return self.cells[-1], len(Lines(self.cells[-1].python))

    def first_line(self, cell: Cell) -> int:
        """The line of `source` at which `cell` starts."""
        before = (other for other in self.cells if other.number < cell.number)
        return 1 + sum(len(Lines(other.python)) for other in before)

    def with_texts(self, texts: Sequence[str]) -> Notebook:
        """The notebook with the cells' texts replaced; only cells that differ are written anew, in the file's style."""
        raw = self.raw
        for cell, text in reversed(list(zip(self.cells, texts, strict=True))):
            if text != cell.text:
                raw = raw[: cell.node.start] + _source_text(raw, cell.node, text) + raw[cell.node.end :]
        return read_notebook(raw)


def read_notebook(raw: str) -> Notebook:
    """The notebook in the text of an `.ipynb` file.

    Raises:
        NotebookError: it is no JSON, or has no cells of the kind that notebooks have.

    """
    try:
        document = parse(raw)
    except JsonError as error:
        raise NotebookError(f"the notebook is not valid JSON: {error}", error.offset) from error
    cells = document.get("cells")
    if cells is None or not isinstance(cells.value, list):
        raise NotebookError("the file is JSON but no notebook of format 4: it has no list of cells")
    if not _is_python(document):
        return Notebook(raw, ())
    nodes = [(number, node) for number, node in enumerate(cells.items(), start=1) if _kind(node) == "code"]
    return Notebook(raw, tuple(cell for number, node in nodes if (cell := _cell(number, node)) is not None))


def _is_python(document: Node) -> bool:
    """Whether the kernel speaks Python; a notebook that does not say is taken for one."""
    for keys in (("metadata", "kernelspec", "language"), ("metadata", "language_info", "name")):
        node = document.get(*keys)
        if node is not None and isinstance(node.value, str):
            return "python" in node.value.lower()
    return True


def _kind(cell: Node) -> object:
    node = cell.get("cell_type")
    return None if node is None else node.value


def _cell(number: int, node: Node) -> Cell | None:
    source = node.get("source")
    value = None if source is None else source.plain()
    if source is None or not isinstance(value, (str, list)):
        return None
    text = value if isinstance(value, str) else "".join(str(piece) for piece in value)
    python, foreign = neutralise(text)
    cell = Cell(number, text, source, foreign, python)
    error = _syntax_error(python)
    return cell if error is None else replace(cell, python=_blank(text), error=error)


def _syntax_error(python: str) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(python)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))
    return None


def _blank(text: str) -> str:
    return "\n" * (len(Lines(text)) - 1)


def neutralise(text: str) -> tuple[str, frozenset[int]]:
    """`text` with IPython's magics, shell commands and help requests replaced by Python that does nothing, and the
    lines that were replaced. The number of lines stays.
    """
    lines = Lines(text)
    rows = [lines.line(number) for number in range(1, len(lines) + 1)]
    magic = _cell_magic(rows)
    if magic is not None and magic[1] not in PYTHON_CELL_MAGICS:
        return _blank(text), frozenset(range(1, len(rows) + 1))
    first = 0 if magic is None else magic[0] + 1
    foreign = set(range(1, first + 1))
    rows[:first] = [""] * first
    quote, depth, carried = "", 0, ""
    for index, row in enumerate(rows):
        inside = bool(quote or depth or carried == "python")
        line = "" if carried == "magic" else None if inside else _harmless(row)
        if line is None:
            quote, depth = _scan(row, quote, depth)
        else:
            rows[index] = line
            foreign.add(index + 1)
        carried = "" if not row.endswith("\\") else "python" if line is None else "magic"
    return "\n".join(rows), frozenset(foreign)


def _cell_magic(rows: Sequence[str]) -> tuple[int, str] | None:
    """Index and name of the cell magic; it stands on the first line that says anything."""
    for index, row in enumerate(rows):
        if row.strip():
            match = re.match(r"%%(\w*)", row)
            return (index, match[1]) if match else None
    return None


def _harmless(row: str) -> str | None:
    """What stands for a line that is not Python; None for one that is. What `%time` runs keeps its place."""
    if match := _TIMED.fullmatch(row):
        return match["indent"] + "pass;".ljust(len(match["magic"])) + match["python"]
    if match := _MAGIC.match(row):
        return match["indent"] + "pass"
    if match := _ASSIGNED_MAGIC.match(row):
        return match["target"] + "None"
    if match := _HELP.match(row):
        return match["indent"] + "pass"
    return None


_TOKEN = re.compile(
    r"""(?P<triple>'{3}|"{3})
    |(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<comment>\#.*)
    |(?P<bracket>[()\[\]{}])""",
    re.VERBOSE,
)


def _scan(row: str, quote: str, depth: int) -> tuple[str, int]:
    """The triple quote and the bracket depth that are open at the end of a line, given those at its beginning."""
    at = 0
    while at < len(row):
        if quote:
            close = row.find(quote, at)
            if close < 0:
                return quote, depth
            quote, at = "", close + 3
            continue
        match = _TOKEN.search(row, at)
        if match is None:
            return quote, depth
        at = match.end()
        if match["triple"]:
            quote = match["triple"]
        elif match["bracket"]:
            depth = max(0, depth + (1 if match["bracket"] in "([{" else -1))
    return quote, depth


def _source_text(raw: str, node: Node, text: str) -> str:
    """`text` as the JSON of a cell's source, written as the file wrote it: a list with one line each, or one string."""
    ascii_only = raw.isascii()
    if isinstance(node.value, str):
        return json.dumps(text, ensure_ascii=ascii_only)
    pieces = [json.dumps(piece, ensure_ascii=ascii_only) for piece in _keep_ends(text)]
    if not pieces:
        return "[]"
    opening, between, closing = _list_style(raw, node)
    return "[" + opening + ("," + between).join(pieces) + closing + "]"


def _keep_ends(text: str) -> list[str]:
    lines = Lines(text)
    edges = [*lines.starts, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges) if start < end]


def _list_style(raw: str, node: Node) -> tuple[str, str, str]:
    """White space after `[`, after each comma, and before `]`, as the file has it in this list."""
    items = list(node.items())
    if not items:
        return "", " ", ""
    opening = raw[node.start + 1 : items[0].start]
    closing = raw[items[-1].end : node.end - 1]
    between = raw[items[0].end + 1 : items[1].start] if len(items) > 1 else opening or " "
    return opening, between, closing
