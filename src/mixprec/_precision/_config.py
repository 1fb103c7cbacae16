"""A configuration file becomes arguments only if every key is known and every value accepted; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixprec._scaler import GradScaler
from mixprec.errors import InvalidValueError, UnknownNameError

__all__ = ["arguments", "scaler_from"]

_KEYS = ("mode", "device", "max_norm", "accumulate", "policy", "scaler", "drop_nonfinite", "kernels")
_SCALER_KEYS = (
    "init_scale",
    "growth_factor",
    "backoff_factor",
    "growth_interval",
    "min_scale",
    "max_scale",
    "floor_patience",
)

_TEXT = "It is text: take quotes away, and in YAML write 65536.0 or 1.0e+5, since 1e5 and 2**16 are text there."


def arguments(config: Any) -> dict[str, Any]:
    """The keyword arguments that `config` stands for, `scaler` still a mapping.

    Raises: InvalidValueError, UnknownNameError.
    """
    _check_mapping("config", config, _KEYS)
    given = dict(config)
    for key in ("mode", "device", "policy", "kernels"):
        if given.get(key) is not None and not isinstance(given[key], str):
            raise InvalidValueError(key, given[key], "text, or left out")
    if given.get("scaler") is not None:
        _check_mapping("scaler", given["scaler"], _SCALER_KEYS, "scaler.")
    if isinstance(given.get("max_norm"), str):
        raise InvalidValueError("max_norm", given["max_norm"], "None or a positive number", _TEXT)
    return given


def scaler_from(settings: Mapping[str, Any], device_type: str) -> GradScaler:
    """The scaler that the `scaler` section describes. Raises: InvalidValueError that names `scaler.KEY`."""
    for key, value in settings.items():
        optional = key == "floor_patience" and value is None
        if not optional and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise InvalidValueError(f"scaler.{key}", value, "a number", _TEXT if isinstance(value, str) else "")
    try:
        return GradScaler(device_type, **settings)
    except InvalidValueError as error:
        raise InvalidValueError(f"scaler.{error.name}", error.value, error.accepted, error.advice) from error
    except AssertionError as error:  # torch's own two checks
        key = "growth_factor" if "growth" in str(error) else "backoff_factor"
        accepted = "a number above 1" if key == "growth_factor" else "a number above 0 and below 1"
        raise InvalidValueError(f"scaler.{key}", settings[key], accepted) from error


def _check_mapping(name: str, value: Any, known: tuple[str, ...], prefix: str = "") -> None:
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, value, "a mapping with the keys " + ", ".join(known))
    for key in value:
        if key not in known:
            raise UnknownNameError("key", f"{prefix}{key}", [prefix + k for k in known])
