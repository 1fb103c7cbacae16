"""What a scaler is set to is a `Rules` value, checked whenever it changes; torch's attributes are views of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mixprec._headroom import HeadroomRules
from mixprec._loss_scale import Rules, State, bounded, on_device
from mixprec.errors import InvalidValueError

MIN_SCALE = 1.0
MAX_SCALE = 2.0**24
EXTRA = "mixprec"
"""The key of a state dict under which what torch's scaler does not know is kept; torch's ignores it."""

_DEFAULTS = Rules()
_TORCH_ARGUMENTS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


@dataclass(frozen=True)
class Settings:
    """The arguments of a scaler that make its rules."""

    init_scale: float
    growth_factor: float
    backoff_factor: float
    growth_interval: int
    min_scale: float
    max_scale: float
    floor_patience: int | None

    def rules(self, given: Rules | HeadroomRules | None) -> Rules | HeadroomRules:
        """The rules they stand for, or the `given` ones, beside which none of them may be set.

        Raises: AssertionError as torch's scaler does, InvalidValueError for what it lets through.
        """
        if given is not None:
            self._refuse_both()
            return given if isinstance(given, HeadroomRules) else on_device(given)
        if self.growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if self.backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        low, high = self._bounds()
        return Rules(
            init_scale=self.init_scale,
            growth_factor=self.growth_factor,
            backoff_factor=self.backoff_factor,
            growth_interval=self.growth_interval,
            min_scale=low,
            max_scale=high,
            floor_patience=self.floor_patience,
        )

    def _bounds(self) -> tuple[float, float]:
        """The bounds; one that was left at its default gives way to an init_scale outside it, as torch accepts it."""
        low = min(self.min_scale, self.init_scale) if self.min_scale is MIN_SCALE else self.min_scale
        high = max(self.max_scale, self.init_scale) if self.max_scale is MAX_SCALE else self.max_scale
        in_reach = math.isfinite(self.init_scale) and self.init_scale > 0.0
        return (low, high) if in_reach else (self.min_scale, self.max_scale)

    def _refuse_both(self) -> None:
        for name in (*_TORCH_ARGUMENTS, "min_scale", "max_scale", "floor_patience"):
            if getattr(self, name) != getattr(_DEFAULTS, name):
                raise InvalidValueError(
                    name,
                    getattr(self, name),
                    "its default where rules are given",
                    f"Write rules=dataclasses.replace(rules, {name}={getattr(self, name)!r}).",
                )


def checked_scale(name: str, value: Any, rules: Rules) -> float:
    """`value` as a loss scale within the bounds. Raises: InvalidValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
        raise InvalidValueError(name, value, "a finite number above 0")
    if not rules.min_scale <= value <= rules.max_scale:
        raise InvalidValueError(
            name,
            value,
            f"a number from min_scale={rules.min_scale!r} to max_scale={rules.max_scale!r}",
            "Give the scaler wider bounds to go beyond.",
        )
    return float(value)


@dataclass(frozen=True)
class Saved:
    """A state dict, read and checked: the rules and the state that it sets; the `peak` that headroom rules saved."""

    rules: Rules
    state: State
    peak: float | None


def state_dict(rules: Rules, state: State, peak: float | None = None) -> dict[str, Any]:
    """`state` as torch's scaler saves it: the same five keys, and one more only where there is more to say."""
    saved: dict[str, Any] = {
        "scale": state.scale,
        "growth_factor": rules.growth_factor,
        "backoff_factor": rules.backoff_factor,
        "growth_interval": rules.growth_interval,
        "_growth_tracker": state.clean_steps,
    }
    more = {} if peak is None else {"peak": peak}
    if more or state.allowance != rules.hysteresis - 1 or state.floor_overflows:
        saved[EXTRA] = {"version": 1, "allowance": state.allowance, "floor_overflows": state.floor_overflows} | more
    return saved


def read_state_dict(rules: Rules, saved: Mapping[str, Any]) -> Saved:
    """What `saved` sets in a scaler with these `rules`; a scale outside the bounds is brought within them.

    Raises: RuntimeError for an empty dict and KeyError for a missing key, as torch's scaler does; InvalidValueError for
    a value that torch's scaler would load and be broken by.
    """
    if len(saved) == 0:
        raise RuntimeError(
            "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
        )
    scale = _plain(saved["scale"])
    changed = replace(
        rules,
        growth_factor=_plain(saved["growth_factor"]),
        backoff_factor=_plain(saved["backoff_factor"]),
        growth_interval=_plain(saved["growth_interval"]),
    )
    tracker = _plain(saved["_growth_tracker"])
    if not (isinstance(scale, (int, float)) and 0.0 < scale < math.inf):
        raise InvalidValueError("scale", scale, "a finite number above 0", "The saved scaler was broken already.")
    extra = saved.get(EXTRA, {})
    state = State(
        scale=float(scale),
        clean_steps=_count("_growth_tracker", tracker),
        allowance=_count("allowance", extra.get("allowance", rules.hysteresis - 1)),
        floor_overflows=_count("floor_overflows", extra.get("floor_overflows", 0)),
    )
    return Saved(changed, bounded(changed, state), _peak(_plain(extra.get("peak"))))


def _peak(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
        raise InvalidValueError("peak", value, "a finite number, 0 or more")
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**31 - 1:
        raise InvalidValueError(name, value, "a whole number from 0 to 2147483647")
    return value


def _plain(value: Any) -> Any:
    """A number that a checkpoint format turned into a tensor, as a number again."""
    return value.item() if hasattr(value, "item") else value
