"""How much of a state dict its module took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

__all__ = ["matched"]

NAMED = 3


def matched(module: nn.Module, state: Any, result: Any) -> dict[str, Any]:
    """Of the keys of `state`: how many there are, how many found no place, how many places got none, and of these how
    many are there under another prefix.
    """
    missing, unexpected = _keys(result, "missing_keys"), _keys(result, "unexpected_keys")
    given = list(state) if isinstance(state, dict) else []
    moved = [key for key in missing if any(_one_prefixed(key, other) for other in unexpected)]
    return {
        "given": len(given),
        "unexpected": len(unexpected),
        "missing": len(missing),
        "moved": len(moved),
        "first_missing": missing[:NAMED],
        "first_unexpected": unexpected[:NAMED],
    }


def _keys(result: Any, name: str) -> list[str]:
    keys = getattr(result, name, ())
    return [str(key) for key in keys] if isinstance(keys, Iterable) else []


def _one_prefixed(one: str, other: str) -> bool:
    """Whether one name is the other with something in front, as "module.body.weight" is "body.weight"."""
    return one.endswith(f".{other}") or other.endswith(f".{one}")
