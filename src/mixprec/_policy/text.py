"""A policy's text says one thing per line and reads back to the same policy.

```
base torch cuda                                   # or: torch cpu 2.6, uniform, lean, careful; first and once
casts everything                                  # only where it differs from what the base shares
op exp: keep
op softmax in encoder.*: fp32 because it overflowed
op softmax in class torch.nn.MultiheadAttention: fp32
module encoder.layers.3: fp32
class torch.nn.LayerNorm: keep
```
`#` begins a comment anywhere. Blank lines mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from mixprec._policy.base import Base
from mixprec._policy.entry import Rule
from mixprec._policy.rule import as_rule
from mixprec._policy.selector import Kind, Selector, class_selector, path_selector
from mixprec._policy.sharing import Sharing, as_sharing
from mixprec.errors import InvalidValueError, PolicySyntaxError

__all__ = ["line_of", "read", "write"]

_T = TypeVar("_T")
_FORMS = (
    "'base NAME [DEVICE [VERSION]]', 'casts weights|everything', 'op NAME: RULE', 'op NAME in MODULE: RULE', "
    "'module PATH: RULE' or 'class NAME: RULE', each rule with an optional 'because TEXT'"
)
_RULE = re.compile(r"(op|module|class)\s+(\S+)(?:\s+in\s+(?:(class|path)\s+)?(\S+))?\s*:\s+(\S+)(?:\s+because\s+(.+))?")


def write(base: Base, rules: Iterable[Rule], sharing: Sharing) -> str:
    """The text of a policy, without a final newline."""
    lines = [f"base {base}"]
    if sharing is not base.sharing:
        lines.append(f"casts {sharing.value}")
    return "\n".join([*lines, *map(line_of, rules)])


def line_of(rule: Rule) -> str:
    """The line that writes `rule` down."""
    because = f" because {rule.reason}" if rule.reason else ""
    return f"{_subject(rule)}: {rule.rule.value}{because}"


def read(text: str) -> tuple[Base, tuple[Rule, ...], Sharing]:
    """The base, rules and sharing that `text` writes down. Raises `PolicySyntaxError` with the line."""
    base: Base | None = None
    sharing: Sharing | None = None
    rules: list[Rule] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = " ".join(raw.partition("#")[0].split())
        word = line.partition(" ")[0]
        if not line:
            continue
        if (word == "base") is not (base is None):
            raise PolicySyntaxError(number, line, "'base NAME [DEVICE [VERSION]]' as the first line, and only there")
        if word == "base":
            base = _at(number, line, _base)
        elif word == "casts":
            sharing = _at(number, line, _sharing)
        else:
            rules.append(_at(number, line, _rule))
    if base is None:
        raise PolicySyntaxError(1, text.strip(), "'base NAME [DEVICE [VERSION]]' as the first line")
    return base, tuple(rules), sharing or base.sharing


def _subject(rule: Rule) -> str:
    if rule.op is None:
        assert rule.where is not None, "a rule has an op, a module, or both"
        return f"{'class' if rule.where.kind is Kind.CLASS else 'module'} {rule.where.pattern}"
    return f"op {rule.op}" if rule.where is None else f"op {rule.op} in {rule.where}"


def _at(number: int, line: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(line)
    except InvalidValueError as error:
        accepted = error.accepted if not error.advice else f"{error.accepted} ({error.advice.rstrip('.')})"
        raise PolicySyntaxError(number, line, accepted) from error


def _base(line: str) -> Base:
    _, *parts = line.split()
    if not 1 <= len(parts) <= 3:
        raise InvalidValueError("base", line, _FORMS)
    return Base(*parts)


def _sharing(line: str) -> Sharing:
    return as_sharing(line.partition(" ")[2])


def _rule(line: str) -> Rule:
    match = _RULE.fullmatch(line)
    if match is None or (match[4] and match[1] != "op"):
        raise InvalidValueError("line", line, _FORMS)
    word, subject, kind, place, rule, reason = match.groups(default="")
    if word == "op":
        return Rule(subject, _place(kind, place) if place else None, as_rule(rule), reason)
    return Rule(None, _place(word, subject), as_rule(rule), reason)


def _place(kind: str, pattern: str) -> Selector:
    return class_selector(pattern) if kind == "class" else path_selector(pattern)
