"""A policy's JSON holds what it is made of, which reads back, and the rule of every op with its reason, which explains.

```
{"schema": 1, "base": {"name": "torch", "device": "cuda", "version": null}, "casts": "weights",
 "rules": [{"op": "softmax", "module": "encoder.*", "class": null, "rule": "fp32", "reason": ""}],
 "ops": {"softmax": {"rule": "fp32_out", "level": "base", "reason": "...", "source": "https://...", "replacement": ""}}}
```
Reading ignores `ops` and any key that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixprec._policy.base import Base
from mixprec._policy.entry import Rule
from mixprec._policy.resolve import Decision
from mixprec._policy.rule import as_rule
from mixprec._policy.selector import Kind, Selector, class_selector, path_selector
from mixprec._policy.sharing import Sharing, as_sharing
from mixprec.errors import InvalidValueError
from mixprec.records import SCHEMA, to_json

__all__ = ["read", "write"]


def write(base: Base, rules: tuple[Rule, ...], sharing: Sharing, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    """The JSON-ready document of a policy; `decisions` are those for the ops that have a rule outside modules."""
    return {
        "schema": SCHEMA,
        "base": to_json(base),
        "casts": sharing.value,
        "rules": [_rule(rule) for rule in rules],
        "ops": {op: _decision(decision) for op, decision in decisions.items()},
    }


def read(document: Mapping[str, Any]) -> tuple[Base, tuple[Rule, ...], Sharing]:
    """Base, rules and sharing from a document that `write` made. Raises `InvalidValueError` and its kin."""
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, Mapping) else document
        raise InvalidValueError("schema of the policy", found, repr(SCHEMA))
    base = Base(**{key: _entry(document, "base").get(key) for key in ("name", "device", "version")})
    rules = tuple(_read_rule(entry) for entry in document.get("rules", ()))
    return base, rules, as_sharing(document.get("casts", base.sharing.value))


def _rule(rule: Rule) -> dict[str, Any]:
    kind, pattern = (rule.where.kind, rule.where.pattern) if rule.where else (None, None)
    return {
        "op": rule.op,
        "module": pattern if kind is Kind.PATH else None,
        "class": pattern if kind is Kind.CLASS else None,
        "rule": rule.rule.value,
        "reason": rule.reason,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {key: value for key, value in to_json(decision).items() if key != "op"}


def _read_rule(entry: Mapping[str, Any]) -> Rule:
    return Rule(entry.get("op"), _where(entry), as_rule(_entry(entry, "rule")), entry.get("reason", ""))


def _where(entry: Mapping[str, Any]) -> Selector | None:
    if entry.get("class") is not None:
        return class_selector(entry["class"])
    return None if entry.get("module") is None else path_selector(entry["module"])


def _entry(document: Mapping[str, Any], key: str) -> Any:
    if key not in document:
        raise InvalidValueError(f"{key!r} of the policy", None, f"an entry {key!r}")
    return document[key]
