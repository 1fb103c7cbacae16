"""An op's record as JSON and back: `records.to_json` writes it, `from_document` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixprec.records import Location, OpRecord, TensorStats

__all__ = ["from_document"]


def from_document(document: Mapping[str, Any]) -> OpRecord:
    """The record that `records.to_json` made `document` of."""
    entries = dict(document)
    entries["location"] = Location(**entries["location"])
    for key in ("inputs", "outputs", "exact"):
        entries[key] = tuple(TensorStats(**{**one, "shape": tuple(one["shape"])}) for one in entries.get(key, ()))
    for key in ("names", "sources"):
        entries[key] = tuple(entries.get(key, ()))
    entries["scalars"] = tuple((name, value) for name, value in entries.get("scalars", ()))
    return OpRecord(**entries)
