"""The reference is made of the docstrings of every public name, when the site is built; nothing of it is kept.

A docstring is Markdown already. What is done to it: `Args:` becomes a list, and indented code a fenced block.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MODULES = {
    "mixprec": "The library",
    "mixprec.presets": "Loss-scale presets",
    "mixprec._loss_scale": "The specification of the loss scale",
    "mixprec.formats": "Formats",
    "mixprec.records": "Records",
    "mixprec.errors": "Errors and warnings",
    "mixprec.causes": "Causes",
    "mixprec.lint": "Lint",
    "mixprec.migrate": "Migrate",
    "mixprec.monitor": "Monitor",
    "mixprec.doctor": "Doctor",
    "mixprec.audit": "Audit",
}
"""Modules whose public names are documented, where they have any, and the headings of their parts."""


def names(module: Any) -> list[str]:
    """Public names of a module, without the version."""
    return [name for name in getattr(module, "__all__", ()) if name != "__version__"]


def documented() -> dict[str, Any]:
    """The modules that have public names, by dotted name."""
    modules = {dotted: importlib.import_module(dotted) for dotted in MODULES}
    return {dotted: module for dotted, module in modules.items() if names(module)}


def index() -> str:
    """The page that lists every public name with its first sentence."""
    lines = ["# Reference", "", INTRODUCTION, ""]
    for dotted, module in documented().items():
        lines += [f"## {MODULES[dotted]}", "", f"[`{dotted}`]({file(dotted)})", "", "| name | |", "| --- | --- |"]
        for name in names(module):
            about = re.sub(r"\s+", " ", _first(getattr(module, name))).replace("|", "\\|")
            own = dotted == "mixprec" and inspect.ismodule(getattr(module, name))
            link = file("mixprec.presets") if own else f"{file(dotted)}#{name.lower()}"
            lines.append(f"| [`{name}`]({link}) | {about if _speaks(getattr(module, name)) else ''} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


INTRODUCTION = (
    "Every public name, from its docstring. `mixprec.NAME` resolves at first use: importing `mixprec` does not load "
    "torch.\nA leading underscore in a module's name says: read it, test against it, and expect it to move."
)


def file(dotted: str) -> str:
    """The file of a module's part."""
    return f"{dotted.rpartition('.')[2].lstrip('_')}.md".replace("mixprec.md", "library.md")


def part(dotted: str) -> str:
    """The page of a module."""
    module = importlib.import_module(dotted)
    lines = [f"# {MODULES[dotted]}", "", f"`{dotted}`: {_first(module)}", ""]
    for name in names(module):
        lines += entry(dotted, name, getattr(module, name))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _speaks(value: Any) -> bool:
    """Whether an object has words of its own, rather than those of its type."""
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def entry(dotted: str, name: str, value: Any) -> list[str]:
    """One name: its signature, its docstring, and for a class its public methods and properties."""
    lines = [f"## {name}", ""]
    if inspect.isclass(value) or inspect.isroutine(value):
        lines += [*signature(name, value), "", *prose(value), ""]
        lines += members(value) if inspect.isclass(value) else []
    elif inspect.ismodule(value):
        lines += [f"A module: `{value.__name__}`. {_first(value)}", ""]
    else:
        lines += [f"`{name}: {type(value).__name__}`", ""]
    return lines


def signature(name: str, value: Any) -> list[str]:
    """A fenced signature; none for enumerations and errors whose constructor nobody calls."""
    if inspect.isclass(value) and issubclass(value, (enum.Enum, BaseException)):
        return []
    try:
        found = inspect.signature(value)
    except ValueError:
        return []
    parts = list(_parts(found))
    one = f"{name}({', '.join(parts)})"
    text = one if len(one) <= 100 else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + ")"
    return ["```python signature", text, "```"]


def _parts(found: inspect.Signature) -> Iterator[str]:
    """Parameters as they are written, with the star before those that need their names."""
    kept = [parameter for parameter in found.parameters.values() if parameter.name != "self"]
    starred = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in kept)
    for parameter in kept:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield str(parameter.replace(annotation=_annotation(parameter.annotation), default=_default(parameter.default)))


class Shown(str):
    """Text that shows itself without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _annotation(value: Any) -> Any:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return inspect.Parameter.empty if value is inspect.Parameter.empty else Shown(text.replace("'", ""))


def _default(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return Shown(f"{type(value).__name__}.{value.name}")
    if isinstance(value, frozenset):
        return Shown("{" + ", ".join(sorted(f"{type(v).__name__}.{v.name}" for v in value)) + "}")
    if isinstance(value, float) and value >= 1024 and math.frexp(value)[0] == 0.5:
        return Shown(f"2.0**{math.frexp(value)[1] - 1}")
    return value if value is inspect.Parameter.empty or not callable(value) else Shown("…")


def prose(value: Any) -> list[str]:
    """The docstring as Markdown; nothing for one that Python made up."""
    text = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        return []
    return _lists(_fences(text.splitlines()))


def _fences(lines: list[str]) -> list[str]:
    """Blocks that are indented after an empty line become fenced ones."""
    out: list[str] = []
    inside = False
    for index, line in enumerate(lines):
        begins = line.startswith("    ") and (index == 0 or not lines[index - 1].strip() or _doctest(line))
        if not inside and begins and not _in_list(lines, index):
            out.append("```pycon" if _doctest(line) else "```python fragment")
            inside = True
        if inside and line.strip() and not line.startswith("    "):
            while not out[-1].strip():
                out.pop()
            out += ["```", ""]
            inside = False
        out.append(line.removeprefix("    ") if inside else line)
    return [*out, "```"] if inside else out


def _doctest(line: str) -> bool:
    return line.lstrip().startswith(">>> ")


def _in_list(lines: list[str], index: int) -> bool:
    """Whether an indented line belongs to `Args:` or a list item above it."""
    above = next((line for line in reversed(lines[:index]) if line.strip() and not line.startswith("    ")), "")
    return above.startswith(("- ", "* ")) or above.rstrip() in ("Args:", "Attributes:", "Returns:")


def _lists(lines: list[str]) -> list[str]:
    """`Args:` and its indented names become a list."""
    out: list[str] = []
    inside = False
    for line in lines:
        if line.rstrip() in ("Args:", "Attributes:"):
            inside = True
            out += [f"**{line.strip().rstrip(':')}**", ""]
            continue
        inside = inside and (not line.strip() or line.startswith("    "))
        item = re.match(r"    (\w[\w, *]*): (.*)$", line) if inside else None
        out.append(f"- `{item[1]}`: {item[2]}" if item else f"  {line.strip()}" if inside and line.strip() else line)
    return out


def members(owner: Any) -> Iterator[str]:
    """Values of an enumeration; else public methods and properties that a class defines, and fields of a record."""
    if issubclass(owner, enum.Enum):
        yield from (f"- `{member.name}` = `{member.value!r}`" for member in owner)
        yield ""
        return
    for name, member in vars(owner).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield from (f"### {owner.__name__}.{name}", "", *prose(member), "")
        elif inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod)):
            bound = getattr(owner, name)
            yield from (f"### {owner.__name__}.{name}()", "", *signature(name, bound), "", *prose(bound), "")


def pages() -> Mapping[str, str]:
    """The index and a page per module: names of files in reference/, and their texts."""
    return {"README.md": index(), **{file(dotted): part(dotted) for dotted in documented()}}
