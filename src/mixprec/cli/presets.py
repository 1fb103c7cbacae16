"""List the loss-scale rules of PyTorch and its peers.

Each row is data with its source; `mixprec.presets.get(name).rules` is the same object that a scaler takes.
"""

from __future__ import annotations

import dataclasses
import math

import click

from mixprec.cli._options import format_option
from mixprec.formats import FP32
from mixprec.presets import Preset, all_presets, get
from mixprec.report import json, text

__all__ = ["command"]


@click.command()
@click.argument("name", required=False)
@format_option()
def command(name: str | None, output: str) -> None:
    """Show the loss-scale rules of every system side by side, or all that is known about NAME."""
    presets = tuple(all_presets()) if name is None else (get(name),)
    if output == "json":
        click.echo(json.document(presets=presets))
    elif name is None:
        _print_table(presets)
    else:
        _print_one(presets[0])


def _print_table(presets: tuple[Preset, ...]) -> None:
    columns = ("preset", "start", "growth", "back-off", "every", "hysteresis", "min", "max")
    rows = [
        (
            preset.name,
            _power(preset.rules.init_scale),
            f"×{preset.rules.growth_factor:g}",
            f"×{preset.rules.backoff_factor:g}",
            str(preset.rules.growth_interval),
            str(preset.rules.hysteresis),
            _bound(preset.rules.min_scale),
            _bound(preset.rules.max_scale),
        )
        for preset in presets
    ]
    screen = text.console()
    screen.print(text.table(columns, rows, right=range(1, len(columns))))
    screen.print("`mixprec presets NAME` shows every field of one, what is special about it, and its source.")


def _print_one(preset: Preset) -> None:
    screen = text.console()
    screen.print(preset.name, style="bold")
    screen.print(preset.note)
    fields = [(field.name, _shown(getattr(preset.rules, field.name))) for field in dataclasses.fields(preset.rules)]
    screen.print(text.pairs(fields))
    text.links(screen, preset.sources)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return _power(value)
    return str(getattr(value, "value", value))


def _bound(value: float) -> str:
    return "none" if value == 0.0 or math.isinf(value) else _power(value)


def _power(value: float) -> str:
    """`value` as a power of two where it is one that is easier to read so."""
    if value == FP32.max:
        return "fp32 max"
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent - 1) > 3 else f"{value:g}"
