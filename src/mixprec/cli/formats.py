"""List the floating-point formats, or what each makes of a number.

Every number is derived from a format's bits when it is asked for; nothing is typed in.
"""

from __future__ import annotations

import math
from typing import Any

import click
from rich.console import Console

from mixprec.cli._options import format_option
from mixprec.formats import FORMATS, FloatFormat
from mixprec.report import json, text

__all__ = ["command"]

FACTS = (
    "name",
    "bits",
    "bytes",
    "exponent_bits",
    "mantissa_bits",
    "specials",
    "max",
    "tiny",
    "smallest_subnormal",
    "eps",
    "overflow_threshold",
    "underflow_threshold",
    "max_exact_integer",
    "aliases",
    "source",
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("numbers", nargs=-1, type=float, metavar="[NUMBER]...")
@format_option()
def command(numbers: tuple[float, ...], output: str) -> None:
    """Show every format's range and precision, or what each format makes of NUMBER.

    Examples: mixprec formats; mixprec formats 2.5e-5 65520
    """
    if output == "json":
        roundings = [
            {"number": number, "in": [_rounding(row, number) for row in FORMATS.values()]} for number in numbers
        ]
        click.echo(json.document(formats=[_facts(row) for row in FORMATS.values()], numbers=roundings))
        return
    screen = text.console()
    if not numbers:
        _print_formats(screen)
    for number in numbers:
        _print_number(screen, number)


def _facts(row: FloatFormat) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FACTS}


def _rounding(row: FloatFormat, number: float) -> dict[str, Any]:
    value = row.round(number)
    return {"format": row.name, "value": value, "spacing": row.spacing(number), "fate": _fate(row, number)}


def _fate(row: FloatFormat, number: float) -> str:
    """What happened to `number`: one word or two that tell a rounded number from a lost one."""
    value = row.round(number)
    if not math.isfinite(number):
        return "not finite"
    if not math.isfinite(value):
        return "overflows"
    if abs(number) > row.overflow_threshold:
        return "saturates"
    if value == number:
        return "exact"
    if value == 0.0:
        return "flushed to zero"
    return "subnormal" if abs(value) < row.tiny else "rounded"


def _print_formats(screen: Console) -> None:
    columns = (
        "format",
        "bits",
        "layout",
        "largest",
        "smallest normal",
        "smallest subnormal",
        "eps",
        "integers exact to",
    )
    rows = [
        (
            row.name,
            str(row.bits),
            f"e{row.exponent_bits}m{row.mantissa_bits}",
            f"{row.max:.5g}",
            f"{row.tiny:.5g}",
            f"{row.smallest_subnormal:.5g}",
            f"2^-{row.mantissa_bits}",
            str(row.max_exact_integer),
        )
        for row in FORMATS.values()
    ]
    screen.print(text.table(columns, rows, right=(1, 3, 4, 5, 6, 7)))


def _print_number(screen: Console, number: float) -> None:
    rows = []
    for row in FORMATS.values():
        value = row.round(number)
        error = abs(value - number) / abs(number) if number and math.isfinite(value) else 0.0
        rows.append(
            (
                row.name,
                f"{value:.9g}",
                _fate(row, number),
                f"{error:.2g}" if error else "",
                f"{row.spacing(number):.5g}",
            )
        )
    screen.print(f"{number!r} becomes")
    screen.print(
        text.table(("format", "value", "what happened", "relative error", "spacing there"), rows, right=(1, 3, 4))
    )
