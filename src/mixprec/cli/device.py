"""Say what this machine computes natively, and which precision mixprec would pick on it.

With a name it shows one of the common accelerators, which need not be present; with --all, all of them.
"""

from __future__ import annotations

from typing import Any

import click
import torch
from rich.console import Console

from mixprec._hardware import ACCELERATORS, Accelerator, Traits, accelerator_named, accelerator_of, probe, recommend
from mixprec.cli._options import format_option
from mixprec.report import json, text

__all__ = ["command"]

_KNOWN = ("cuda", "rocm", "mps", "xpu")
"""Kinds of accelerators that mixprec chooses a mode for."""


@click.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="List the common accelerators.")
@format_option()
def command(name: str | None, every: bool, output: str) -> None:
    """Show this machine's devices, or what is known about the accelerator NAME.

    Examples: mixprec device; mixprec device --all; mixprec device H100
    """
    rows = ACCELERATORS if every else (accelerator_named(name),) if name is not None else ()
    here = [] if rows else [probe(device) for device in _devices()]
    if output == "json":
        found = {"devices": [_device(traits) for traits in here]} if here else {}
        click.echo(json.document(**found, accelerators=[_row(row) for row in rows or ACCELERATORS]))
        return
    screen = text.console()
    for traits in here:
        _print_device(screen, traits)
    if here:
        screen.print("\n`mixprec device --all` lists the common accelerators.")
    elif len(rows) == 1:
        _print_row(screen, rows[0])
    else:
        _print_rows(screen)


def _devices() -> list[torch.device]:
    """The CPU and every accelerator of the kind that PyTorch sees."""
    current = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count() if current is not None else 0
    others = [torch.device(current.type, index) for index in range(count)] if current is not None else []
    return [torch.device("cpu"), *others]


def _device(traits: Traits) -> dict[str, Any]:
    known = accelerator_of(traits)
    return {
        **json.plain({"kind": traits.kind, "name": traits.name, "architecture": traits.architecture}),
        "capability": None if traits.capability is None else ".".join(map(str, traits.capability)),
        "features": sorted(traits.features),
        "native": _native(traits),
        "recommended": json.plain(recommend(traits)),
        "accelerator": None if known is None else known.name,
    }


def _row(row: Accelerator) -> dict[str, Any]:
    fields = ("name", "maker", "fp16", "bf16", "tf32", "fp32", "bandwidth", "source", "verified", "note")
    return {**{name: getattr(row, name) for name in fields}, "recommended": json.plain(recommend(row.traits))}


def _native(traits: Traits) -> list[str]:
    """The 16-bit dtypes that the device multiplies itself."""
    if traits.kind == "cpu":
        low = ["bfloat16"] if traits.features & {"AVX512_BF16", "AMX_BF16", "ARM_BF16"} else []
        return low + (["float16"] if traits.features & {"AMX_FP16", "AVX512_FP16"} else [])
    return {"bf16-mixed": ["bfloat16", "float16"], "fp16-mixed": ["float16"]}.get(recommend(traits).mode, [])


def _print_device(screen: Console, traits: Traits) -> None:
    screen.print(traits.name or traits.kind, style="bold")
    chosen, native = recommend(traits), _native(traits)
    rows = [("kind", traits.kind)]
    if traits.capability is not None:
        rows.append(("capability", ".".join(map(str, traits.capability))))
    if traits.architecture:
        rows.append(("architecture", traits.architecture))
    if traits.features:
        rows.append(("instructions", ", ".join(sorted(traits.features))))
    rows += [("16 bits natively", ", ".join(native) or "none"), ("mixprec would pick", chosen.reason)]
    known = accelerator_of(traits)
    if known is not None and known.note:
        rows.append(("note", known.note))
    screen.print(text.pairs(rows))


def _print_row(screen: Console, row: Accelerator) -> None:
    screen.print(f"{row.maker} {row.name}", style="bold")
    units = "dense, float32 accumulation"
    screen.print(
        text.pairs(
            [
                ("float16", _rate(row.fp16, units)),
                ("bfloat16", _rate(row.bf16, units)),
                ("TF32", _rate(row.tf32, "dense")),
                ("float32", _rate(row.fp32, "")),
                ("memory", f"{row.bandwidth:g} TB/s"),
                ("mixprec would pick", recommend(row.traits).mode),
                ("numbers", "from the source below" if row.verified else "not verified"),
                *([("note", row.note)] if row.note else []),
            ]
        )
    )
    text.links(screen, [row.source])


def _rate(rate: float | None, how: str) -> str:
    if rate is None:
        return "no unit for it"
    return f"{rate:g} TFLOPS" + (f" ({how})" if how else "")


def _print_rows(screen: Console) -> None:
    rows = [
        (
            f"{row.maker} {row.name}",
            *(f"{rate:g}" if rate is not None else "–" for rate in (row.fp16, row.bf16, row.tf32, row.fp32)),
            f"{row.bandwidth:g}",
            recommend(row.traits).mode if row.traits.kind in _KNOWN else "–",
            "" if row.verified else "not verified",
        )
        for row in ACCELERATORS
    ]
    columns = ("accelerator", "fp16", "bf16", "TF32", "fp32", "TB/s", "pick", "")
    screen.print(text.table(columns, rows, right=(1, 2, 3, 4, 5)))
    screen.print("TFLOPS at peak, dense, with float32 accumulation. – : no unit for it, or unknown to mixprec.")
