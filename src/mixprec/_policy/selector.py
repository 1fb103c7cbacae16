"""A selector names modules: by path glob (places) or by class (kinds). Matching is exact and has an exact closeness.

Paths are those of `named_modules`: `"encoder.layers.3"`, `""` for the root. A glob matches segment by segment: `*`,
`?` and `[0-3]` inside one segment as in `fnmatch`, `**` any number of segments, also none. A rule holds for
everything inside the module that it names, so a trailing `.**` adds nothing and is dropped; `**` alone is the root,
and thereby everything.

A class name matches by `isinstance`, that is along the bases. `LayerNorm` matches any class of that name;
`torch.nn.LayerNorm` matches a class of that name defined in `torch.nn` or below it, so public names work.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mixprec.errors import InvalidValueError

__all__ = ["Kind", "Place", "Selector", "class_names", "class_selector", "path_selector", "qualified", "selector"]


class Kind(str, enum.Enum):
    """Whether a selector names places or kinds."""

    PATH = "path"
    CLASS = "class"


@dataclass(frozen=True)
class Place:
    """A module as it is met: its path and the qualified names of its classes, its own first, then its bases."""

    path: str = ""
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selector:
    """Which modules a rule speaks of. `pattern` is a path glob or a class name."""

    kind: Kind
    pattern: str

    def closeness(self, place: Place) -> tuple[int, int, int] | None:
        """How closely this names `place` itself, larger is closer; None where it does not.

        Paths are closer than classes; among paths more literal segments, then more literal characters; among
        classes the nearer base, then the longer name.
        """
        return _path_closeness(self.pattern, place.path) if self.kind is Kind.PATH else _class_closeness(self, place)

    def __str__(self) -> str:
        return self.pattern if self.kind is Kind.PATH else f"class {self.pattern}"


def path_selector(pattern: str) -> Selector:
    """The modules whose path matches `pattern`. Raises `InvalidValueError` for what can match no path."""
    _refuse_unwritable("module path", pattern)
    if pattern.startswith(".") or pattern.endswith(".") or ".." in pattern:
        raise InvalidValueError(
            "module path", pattern, "names joined by single dots, as in model.named_modules()", "The root is '**'."
        )
    segments = pattern.split(".")
    while len(segments) > 1 and segments[-1] == "**":
        segments.pop()
    return Selector(Kind.PATH, ".".join(segments))


def class_selector(cls: type | str) -> Selector:
    """The modules of class `cls`, a class or its name. Raises `InvalidValueError`."""
    name = qualified(cls) if isinstance(cls, type) else cls
    _refuse_unwritable("class name", name)
    if any(c in name for c in "*?["):
        raise InvalidValueError("class name", name, "a class name without wildcards", "Globs are for module paths.")
    return Selector(Kind.CLASS, name)


def selector(value: Selector | type | str) -> Selector:
    """`value` as a selector.

    A class is a class. A string that begins with `class ` or `path ` is what it says. Any other string is a class
    name where its last dotted part is written like one (`LayerNorm`, `torch.nn.LayerNorm`, `GPT2Block`: an upper-case
    first letter, a lower-case letter somewhere, no underscore, no wildcard), else a path glob.
    """
    if isinstance(value, Selector):
        return value
    if isinstance(value, type):
        return class_selector(value)
    if not isinstance(value, str):
        raise InvalidValueError("module", value, "a path glob, a class, or a class name")
    for prefix, make in (("class ", class_selector), ("path ", path_selector)):
        if value.startswith(prefix):
            return make(value[len(prefix) :].strip())
    return class_selector(value) if _looks_like_class(value) else path_selector(value)


def qualified(cls: type) -> str:
    """`module.QualName` of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def class_names(classes: type | str | Iterable[type | str]) -> tuple[str, ...]:
    """Qualified names, nearest first: of a class and its bases, or of the classes listed, as they are."""
    if isinstance(classes, type):
        return tuple(qualified(c) for c in classes.__mro__)
    if isinstance(classes, str):
        return (classes,)
    return tuple(qualified(c) if isinstance(c, type) else c for c in classes)


def _looks_like_class(text: str) -> bool:
    last = text.rpartition(".")[2]
    return last.isidentifier() and last[0].isupper() and "_" not in last and any(c.islower() for c in last)


def _refuse_unwritable(name: str, value: str) -> None:
    if not value or any(c.isspace() or c in ":#" for c in value):
        raise InvalidValueError(
            name, value, "a name that is not empty and has no space, ':' or '#'", "In a path, '?' stands for any one."
        )


@functools.lru_cache(maxsize=4096)
def _pattern(segment: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(segment))


@functools.lru_cache(maxsize=65536)
def _path_closeness(pattern: str, path: str) -> tuple[int, int, int] | None:
    segments = tuple(pattern.split("."))
    names = tuple(path.split(".")) if path else ()
    if segments == ("**",):
        return (1, 0, 0) if not names else None
    if not _matches(segments, names):
        return None
    literal = [s for s in segments if not any(c in s for c in "*?[")]
    return (1, len(literal), sum(len(s) for s in literal))


def _matches(segments: Sequence[str], names: Sequence[str]) -> bool:
    if not segments:
        return not names
    if segments[0] == "**":
        return any(_matches(segments[1:], names[i:]) for i in range(len(names) + 1))
    return bool(names) and _pattern(segments[0]).match(names[0]) is not None and _matches(segments[1:], names[1:])


def _class_closeness(wanted: Selector, place: Place) -> tuple[int, int, int] | None:
    for distance, name in enumerate(place.classes):
        if _class_matches(wanted.pattern, name):
            return (0, -distance, len(wanted.pattern))
    return None


def _class_matches(pattern: str, name: str) -> bool:
    if pattern == name:
        return True
    home, _, wanted = pattern.rpartition(".")
    module, _, actual = name.rpartition(".")
    return wanted == actual and (not home or module == home or module.startswith(home + "."))
