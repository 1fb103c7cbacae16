"""mixprec's own layout holds all of a `ScaleCheckpoint` in JSON values, with a version.

A reader takes its own version and every older one. Version 1 is the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import Enum
from typing import Any

from mixprec._loss_scale import Arithmetic, AtMax, Growth, Refill, Rules, State
from mixprec._scale_layouts._checkpoint import ScaleCheckpoint
from mixprec._scale_layouts._entries import count, entry, number, refuse, section
from mixprec.errors import CheckpointError, InvalidValueError

__all__ = ["VERSION", "VERSION_KEY", "read_own", "write_own"]

VERSION = 1
VERSION_KEY = "mixprec_loss_scale"

_CHOICES: Mapping[str, type[Enum]] = {"growth": Growth, "refill": Refill, "at_max": AtMax, "arithmetic": Arithmetic}


def write_own(checkpoint: ScaleCheckpoint) -> dict[str, Any]:
    """`checkpoint` as a dict of JSON values (infinity as Python's JSON writes it)."""
    rules = {k: v.value if isinstance(v, Enum) else v for k, v in asdict(checkpoint.rules).items()}
    return {
        VERSION_KEY: VERSION,
        "rules": rules,
        "state": asdict(checkpoint.state),
        "steps": checkpoint.steps,
        "assumed": list(checkpoint.assumed),
    }


def read_own(mapping: Mapping[str, Any]) -> ScaleCheckpoint:
    """The checkpoint that `write_own` wrote.

    Raises: CheckpointError for a newer version, a missing or unknown entry, or a value out of range.
    """
    version = count(mapping, VERSION_KEY)
    if not 1 <= version <= VERSION:
        raise refuse(VERSION_KEY, version, f"a version up to {VERSION}. A newer mixprec wrote it: upgrade to read it")
    state = section(mapping, "state")
    return ScaleCheckpoint(
        _read_rules(section(mapping, "rules")),
        State(number(state, "scale"), *(count(state, f.name) for f in fields(State)[1:])),
        None if entry(mapping, "steps") is None else count(mapping, "steps"),
        tuple(entry(mapping, "assumed")),
    )


def _read_rules(saved: Mapping[str, Any]) -> Rules:
    known = [f.name for f in fields(Rules)]
    unknown = [key for key in saved if key not in known]
    if unknown:
        raise CheckpointError(unknown[0], f"The saved rules have {unknown[0]!r}, which this mixprec does not know.")
    values = {name: _read_choice(name, entry(saved, name)) for name in known}
    try:
        return Rules(**values)
    except InvalidValueError as error:
        raise CheckpointError(error.name, f"The saved loss-scale rules are out of range: {error}") from error


def _read_choice(name: str, value: Any) -> Any:
    kind = _CHOICES.get(name)
    if kind is None:
        return value
    if value not in [choice.value for choice in kind]:
        raise refuse(name, value, "one of " + ", ".join(str(choice.value) for choice in kind))
    return kind(value)
