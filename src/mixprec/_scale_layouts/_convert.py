"""A conversion is a reading and a writing; what differs after reading back what was written is its list of losses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from mixprec._loss_scale import Arithmetic, Growth, Rules, State
from mixprec._scale_layouts._checkpoint import ScaleCheckpoint, check_scale
from mixprec._scale_layouts._own import VERSION_KEY, read_own, write_own
from mixprec._scale_layouts._systems import SYSTEMS
from mixprec.errors import CheckpointError, InvalidValueError, UnknownNameError
from mixprec.formats import FP32

__all__ = ["LAYOUTS", "Conversion", "Loss", "detect", "from_layout", "to_layout"]

_OWN = "mixprec"

LAYOUTS: tuple[str, ...] = (_OWN, *SYSTEMS)
"""The names of all layouts, mixprec's own first."""


@dataclass(frozen=True)
class Loss:
    """What the other system does not take over: its value here, its value there, and how to set it there, if at all."""

    what: str
    here: object
    there: object
    remedy: str = ""


@dataclass(frozen=True)
class Conversion:
    """A checkpoint in another system's layout, in plain numbers, and everything that this does not say."""

    mapping: dict[str, Any]
    losses: tuple[Loss, ...]


def detect(mapping: Mapping[str, Any]) -> str:
    """The name of the layout that `mapping` is in.

    Raises: CheckpointError for a mapping that is empty or in none.
    """
    if not mapping:
        raise CheckpointError("", "The saved loss scale is empty, as a disabled scaler saves it: nothing to restore.")
    if VERSION_KEY in mapping:
        return _OWN
    for name, system in SYSTEMS.items():
        if system.recognises(mapping):
            return name
    known = "; ".join(f"{name} ({system.keys})" for name, system in SYSTEMS.items())
    raise CheckpointError("", f"The keys {', '.join(map(repr, mapping))} are no known layout's. Known are: {known}.")


def from_layout(name: str, mapping: Mapping[str, Any], rules: Rules | None = None) -> ScaleCheckpoint:
    """The checkpoint that `mapping` holds in the layout `name`.

    `rules` supply what the layout does not carry; by default those of the system's preset.

    Raises: UnknownNameError for an unknown layout; CheckpointError for a missing entry or a value out of range.
    """
    _check_name(name)
    if name == _OWN:
        return read_own(mapping)
    system = SYSTEMS[name]
    values = system.read(mapping)
    base = system.preset.rules if rules is None else rules
    assumed = tuple(field for field in _BEHAVIOUR if field not in values.rules)
    return ScaleCheckpoint(_with(base, values.rules), values.state, values.steps, assumed)


def to_layout(name: str, checkpoint: ScaleCheckpoint) -> Conversion:
    """`checkpoint` in the layout `name`, with a list of what the other system does not take over.

    Clean steps are counted as the other system counts them, so that its next growth comes when ours would have.
    Megatron loads `scale` only as a float32 tensor of shape (1,): wrap it. For `deepspeed-zero`, set each entry as an
    attribute of the optimizer's `loss_scaler`.

    Raises: UnknownNameError for an unknown layout; CheckpointError for a scale that the other system cannot hold.
    """
    _check_name(name)
    if name == _OWN:
        return Conversion(write_own(checkpoint), ())
    system = SYSTEMS[name]
    there = _as_held_by(system.preset.rules, checkpoint)
    mapping = system.write(there)
    read = system.read(mapping)
    losses = (
        *_rule_losses(checkpoint, _with(system.preset.rules, read.rules), system.settings),
        *_state_losses(checkpoint.state, there.state, read.state),
        *_growth_losses(checkpoint, system.preset.rules),
        *_rounding_losses(checkpoint.rules, system.preset.rules),
    )
    return Conversion(mapping, losses)


def _check_name(name: str) -> None:
    if name not in LAYOUTS:
        raise UnknownNameError("layout", name, LAYOUTS)


def _with(base: Rules, carried: Mapping[str, Any]) -> Rules:
    """`base` with the fields that a checkpoint carries; the scale to start at is moved inside the bounds."""
    low, high = carried.get("min_scale", base.min_scale), carried.get("max_scale", base.max_scale)
    try:
        return replace(base, **carried, init_scale=min(max(base.init_scale, low), high))
    except InvalidValueError as error:
        raise CheckpointError(error.name, f"The saved loss-scale rules are out of range: {error}") from error


def _as_held_by(theirs: Rules, checkpoint: ScaleCheckpoint) -> ScaleCheckpoint:
    """The checkpoint with its scale in another system's arithmetic and its clean steps as that system counts them."""
    check_scale(checkpoint.state.scale, theirs)
    state = replace(checkpoint.state, clean_steps=_recounted(checkpoint, theirs))
    if theirs.arithmetic is Arithmetic.FLOAT32:
        state = replace(state, scale=FP32.round(state.scale))
    return replace(checkpoint, state=state)


def _recounted(checkpoint: ScaleCheckpoint, theirs: Rules) -> int:
    """The clean steps as another system counts them, so that its next growth comes when ours would.

    Growth.EVERY leaves a first clean step out and never restarts; the other kinds count it and restart. A count that
    an interval was lowered below grows at the next step under AT_LEAST, so it becomes one that does so elsewhere.
    """
    clean_steps, ours = checkpoint.state.clean_steps, checkpoint.rules
    if ours.growth is Growth.EVERY:
        restarted = max(clean_steps - 1, 0) % ours.growth_interval
        return clean_steps if theirs.growth is Growth.EVERY else restarted
    if ours.growth is Growth.AT_LEAST:
        clean_steps = min(clean_steps, ours.growth_interval - 1)
    return clean_steps + 1 if theirs.growth is Growth.EVERY else clean_steps


_BEHAVIOUR = tuple(field.name for field in fields(Rules) if field.name not in ("init_scale", "arithmetic"))
"""The rules that matter after the first step, but for the format of the scale."""


def _rule_losses(checkpoint: ScaleCheckpoint, there: Rules, settings: Mapping[str, str]) -> list[Loss]:
    here = checkpoint.rules
    differing = [name for name in _BEHAVIOUR if getattr(here, name) != getattr(there, name)]
    if here.hysteresis == there.hysteresis == 1:
        differing = [name for name in differing if name != "refill"]  # of nothing
    if here.max_scale != there.max_scale or math.isinf(here.max_scale):
        differing = [name for name in differing if name != "at_max"]  # the maximum itself is the loss, or there is none
    within_interval = checkpoint.state.clean_steps < here.growth_interval
    if Growth.EVERY not in (here.growth, there.growth) and (within_interval or here.growth is Growth.AT_LEAST):
        differing = [name for name in differing if name != "growth"]  # they part only when an interval is lowered
    return [Loss(name, getattr(here, name), getattr(there, name), settings.get(name, "")) for name in differing]


def _state_losses(here: State, written: State, read: State) -> list[Loss]:
    lost = [name for name in ("allowance", "floor_overflows") if getattr(written, name) != getattr(read, name)]
    if here.scale != written.scale:
        lost.append("scale")
    return [Loss(name, getattr(here, name), getattr(read, name)) for name in lost]


def _growth_losses(checkpoint: ScaleCheckpoint, theirs: Rules) -> list[Loss]:
    """Directly after an overflow Growth.EVERY is one step further from growth than a count from 0 can say."""
    every = checkpoint.rules.growth is Growth.EVERY and theirs.growth is not Growth.EVERY
    if not every or checkpoint.state.clean_steps > 0:
        return []
    away = checkpoint.rules.growth_interval + 1
    return [Loss("steps until growth", away, away - 1)]


def _rounding_losses(here: Rules, there: Rules) -> list[Loss]:
    """float32 and float64 scales part where a factor is no power of 2; else only where float32 ends."""
    exact = all(math.frexp(factor)[0] == 0.5 for factor in (here.growth_factor, here.backoff_factor))
    return (
        [] if exact or here.arithmetic is there.arithmetic else [Loss("arithmetic", here.arithmetic, there.arithmetic)]
    )
