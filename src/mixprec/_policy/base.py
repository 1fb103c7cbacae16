"""A policy starts from one list: PyTorch's own for a device, or one of ours that holds on every device."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mixprec._policy.named import NAMED
from mixprec._policy.sharing import Sharing
from mixprec._policy.tables import DEVICES, Group, release, rows
from mixprec.errors import InvalidValueError, UnknownNameError

__all__ = ["NAMES", "Base", "table"]

NAMES = ("torch", *NAMED)
"""The names of the lists that a policy can start from."""


@dataclass(frozen=True)
class Base:
    """Which list: `torch` with a device type, or `uniform`, `lean`, `careful` without one.

    `version` ("2.6") pins `torch` to that release's list; None is the installed release, read from its metadata
    without importing it. Raises `UnknownNameError` and `InvalidValueError`.
    """

    name: str
    device: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UnknownNameError("policy", self.name, NAMES)
        if self.name != "torch" and (self.device is not None or self.version is not None):
            raise InvalidValueError(
                f"device of {self.name!r}", self.device, "none", "This list is the same on every device."
            )
        if self.name == "torch" and self.device not in DEVICES:
            raise UnknownNameError("device type", str(self.device), DEVICES, "PyTorch has one list per device type.")
        if self.version is not None:
            object.__setattr__(self, "version", _checked(self.version))

    @property
    def sharing(self) -> Sharing:
        """Which casts this list shares unless a policy says otherwise."""
        return Sharing.EVERYTHING if self.name == "lean" else Sharing.WEIGHTS

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.device, self.version) if part)


def table(base: Base) -> Mapping[str, Group]:
    """Op -> the group that gives its rule in the list `base`."""
    return _table(base.name, base.device, base.version or (_installed() if base.name == "torch" else ""))


@functools.lru_cache(maxsize=64)
def _table(name: str, device: str | None, version: str) -> Mapping[str, Group]:
    groups = NAMED[name] if device is None else DEVICES[device]
    return MappingProxyType(dict(sorted(rows(groups, version).items())))


@functools.lru_cache(maxsize=1)
def _installed() -> str:
    from importlib import metadata  # here, because only `Policy.torch` without a version needs it

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def _checked(version: str) -> str:
    major, minor = release(version)
    if (major, minor) < (2, 6):
        raise InvalidValueError("version of PyTorch", version, "2.6 or later, written like '2.6' or '2.13.0'")
    return f"{major}.{minor}"
