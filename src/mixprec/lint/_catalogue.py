"""Every `mpNNN_*.py` in `rules/` holds one rule; finding them is listing the folder."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re

from mixprec.lint._rule import Rule
from mixprec.lint._words import AMP_WORDS, mentions

__all__ = ["all_rules", "speaks"]

_FILE = re.compile(r"mp\d{3}_\w+")


@functools.cache
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule, in the order of codes. Imports one small file per rule, once."""
    import mixprec.lint.rules as package

    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if _FILE.fullmatch(info.name))
    rules: list[type[Rule]] = []
    for name in names:
        module = importlib.import_module(f"{package.__name__}.{name}")
        rules.extend(
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Rule)
            and not inspect.isabstract(value)
            and value.__module__ == module.__name__
        )
    return tuple(rules)


def speaks(source: str) -> bool:
    """Whether any rule would look at `source`. **Cost**: one pass over the text, no parsing."""
    return mentions(source, _words())


@functools.cache
def _words() -> frozenset[str]:
    return frozenset({*AMP_WORDS, *(word for rule in all_rules() for word in rule.words)})
