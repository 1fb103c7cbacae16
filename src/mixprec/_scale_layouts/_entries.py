"""An entry of a saved mapping is there and is the number it should be, or the error says which is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixprec.errors import CheckpointError

__all__ = ["count", "entry", "flag", "number", "refuse", "section", "whole"]


def entry(mapping: Mapping[str, Any], key: str) -> Any:
    """The entry `key`, out of its tensor if it is in one."""
    if key not in mapping:
        found = ", ".join(map(repr, mapping)) or "nothing"
        raise CheckpointError(key, f"The saved loss scale has no {key!r}; it has {found}.")
    value = mapping[key]
    return value.item() if hasattr(value, "item") else value


def number(mapping: Mapping[str, Any], key: str) -> float:
    """The entry `key` as a float."""
    value = entry(mapping, key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(key, value, "a number")
    return float(value)


def whole(mapping: Mapping[str, Any], key: str) -> int:
    """The entry `key` as a whole number, negative or not."""
    value = entry(mapping, key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(key, value, "a whole number")
    return value


def count(mapping: Mapping[str, Any], key: str) -> int:
    """The entry `key` as a whole number, 0 or more."""
    value = whole(mapping, key)
    if value < 0:
        raise refuse(key, value, "a whole number, 0 or more")
    return value


def flag(mapping: Mapping[str, Any], key: str) -> bool:
    """The entry `key` as a truth value."""
    value = entry(mapping, key)
    if not isinstance(value, bool):
        raise refuse(key, value, "True or False")
    return value


def section(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The entry `key`, which is a mapping itself."""
    value = entry(mapping, key)
    if not isinstance(value, Mapping):
        raise refuse(key, value, "a mapping")
    return value


def refuse(key: str, value: object, accepted: str) -> CheckpointError:
    """The error for an entry with the wrong value."""
    return CheckpointError(key, f"{key} is {value!r} in the saved loss scale; accepted is {accepted}.")
