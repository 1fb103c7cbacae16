"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["DEVICES", "device_option", "format_option"]

Function = TypeVar("Function", bound=Callable[..., Any])

DEVICES = ("cpu", "cuda", "mps", "xpu")
"""Device types that a policy is known for."""


def format_option(*more: str) -> Callable[[Function], Function]:
    """`--format text|json` and whatever else the command writes, passed as `output`."""
    return click.option(
        "--format",
        "output",
        type=click.Choice(["text", "json", *more]),
        default="text",
        show_default=True,
        help="What to write on standard output.",
    )


def device_option(default: str = "cuda") -> Callable[[Function], Function]:
    """`--device cpu|cuda|mps|xpu`, passed as `device`."""
    return click.option(
        "--device",
        type=click.Choice(DEVICES),
        default=default,
        show_default=True,
        help="Device type whose rules to use; the device need not be present.",
    )
