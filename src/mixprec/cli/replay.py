"""Run the step of an incident again and name the op that failed.

The incident is a folder that `mixprec run` or a Monitor left behind. The recorded command is run again up to that step.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mixprec._script import Command
from mixprec._trace import Flush, Room, source_line
from mixprec.cli._options import format_option
from mixprec.formats import FP32
from mixprec.monitor.replay import NOTABLE, PRECISIONS, Replay, Traced, keep_result, place, replay_script
from mixprec.records import OpRecord, TensorStats, to_json
from mixprec.report import json
from mixprec.report.text import console

__all__ = ["command"]

_WORST = 5


@click.command()
@click.argument("incident", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("argv", metavar="[SCRIPT [ARGS]...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--precision", type=click.Choice(PRECISIONS), help="Run autocast regions in this precision instead.")
@click.option("--deep", is_flag=True, help="Also show every flushed gradient, and give every op's record in JSON.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds for each of the runs.")
@format_option()
@click.pass_context
def command(
    context: click.Context,
    incident: Path,
    argv: tuple[str, ...],
    precision: str | None,
    deep: bool,
    timeout: float,
    output: str,
) -> None:
    """Run the step of INCIDENT again, twice to compare and once under the op tracer.

    The command that was recorded is run again up to that step; SCRIPT and ARGS replace it. What is found is kept in
    INCIDENT, for `mixprec report`. Exit codes: 0 the step is healthy, 1 it is not, or does not repeat itself.
    """
    found = replay_script(
        incident, precision=precision, deep=deep, timeout=timeout, command=Command(argv) if argv else None
    )
    if precision is None:
        with contextlib.suppress(OSError):  # a folder that cannot be written to
            keep_result(incident, found)
    if output == "json":
        click.echo(json.document(replay=_document(found)))
    else:
        for line in _lines(found, deep):
            console().print(line, soft_wrap=True)
    context.exit(0 if found.healthy and found.repeats else 1)


def _document(found: Replay) -> dict[str, Any]:
    document: dict[str, Any] = {**to_json(found), "healthy": found.healthy, "headline": found.headline}
    if found.traced is not None:
        document["traced"]["origin"]["first"] = to_json(found.traced.origin.first)
    return document


def _lines(found: Replay, deep: bool) -> Iterator[str]:
    """The replay in words."""
    losses = ", ".join(f"{loss:g}" for loss in found.outcome.losses) or "unknown"
    yield f"{found.incident}: step {found.step}, {found.kind}, loss {losses}" + (
        f", in {found.precision}" if found.precision else ""
    )
    yield _agreement(found)
    for note in dict.fromkeys(found.notes):
        yield f"note: {note}"
    if found.traced is None:
        return
    yield ""
    yield found.headline
    if found.traced.rank != found.rank:
        yield f"Rank {found.rank} did nothing wrong: what follows is rank {found.traced.rank}'s."
    yield from _origin(found.traced)
    if found.traced.compiled:
        yield "Compiled functions ran in eager mode under the tracer: what only the compiled code does is not seen."
    if found.traced.room is not None:
        yield from _scale(found.traced.room, found.avoiding_scale)
    yield from _flushes(found.traced, None if deep else _WORST)


def _agreement(found: Replay) -> str:
    if not found.repeats:
        return (
            "Two runs of the step differ: an unseeded source of chance, a non-deterministic kernel or faulty hardware. "
            "Settle this first (mixprec explain MP132)."
        )
    if found.exact:
        return "Replayed twice, both bit for bit as recorded."
    return "Replayed twice, bit for bit the same" + (
        "." if found.precision else ", but not as recorded: the step depends on more than the incident holds."
    )


def _origin(traced: Traced) -> Iterator[str]:
    origin = traced.origin
    sayings = (
        ("Inf or NaN came into the step here", origin.given),
        ("The first Inf", origin.first_inf),
        ("The first NaN from finite numbers", origin.first_nan),
        ("The first NaN from an Inf", origin.nan_from_inf),
    )
    said: dict[int, tuple[str, OpRecord]] = {}
    for words, record in sayings:
        if record is not None:
            said.setdefault(record.index, (words, record))
    for _, (words, record) in sorted(said.items()):
        yield from _op(words, record)
    for record in origin.hidden[:_WORST]:
        yield f"Hidden, no harm: {record.op} at {place(record)}"


def _op(said: str, record: OpRecord) -> Iterator[str]:
    yield f"{said}: {record.op} in {record.phase}" + (f" ({record.node})" if record.node else "")
    yield f"  {place(record)}"
    text = source_line(record.location)
    if text:
        yield f"    {text}"
    if record.scalars:
        yield "  with " + ", ".join(f"{name}={value}" for name, value in record.scalars)
    for name, stats in zip(record.names, record.inputs, strict=False):
        yield f"  in   {name:10} {_stats(stats)}"
    for stats in record.outputs:
        yield f"  out  {'':10} {_stats(stats)}"
    for stats, out in zip(record.exact, record.outputs, strict=False):
        yield f"  in float32      {_stats(stats)}" + (f" (the maximum of {out.dtype} is exceeded)" if out.infs else "")


def _stats(stats: TensorStats) -> str:
    bad = "".join(f", {count} {name}" for count, name in ((stats.infs, "Inf"), (stats.nans, "NaN")) if count)
    shape = "x".join(map(str, stats.shape)) or "scalar"
    return f"{stats.dtype} {shape}, magnitudes {stats.amin:.3g} to {stats.amax:.3g}, {stats.zeros} zero{bad}"


def _scale(room: Room, avoiding: float | None) -> Iterator[str]:
    if room.at_any_scale is not None:
        yield f"A smaller loss scale would not help: {room.at_any_scale.op} overflows in backward at any scale."
    elif avoiding is not None:
        yield f"At a loss scale of {_power(avoiding)} the step was clean (it was {_power(room.scale)})."
    elif room.smaller_scale_helps:
        yield "A smaller loss scale alone does not make the step clean."
    elif room.complete and room.ceiling is not None:
        yield f"Backward has room for a loss scale up to {_power(room.ceiling)} (it was {_power(room.scale)})."


def _power(scale: float) -> str:
    """A power of two, as a number while it is short."""
    return f"{scale:g}" if 1e-4 <= scale < 1e6 else f"2^{math.log2(scale):g}"


def _flushes(traced: Traced, most: int | None) -> Iterator[str]:
    """Where gradients were flushed, the worst first."""
    worst = sorted(traced.flushes, key=lambda flush: -flush.zeroed - flush.subnormal)
    shown = [flush for flush in worst if flush.zeroed + flush.subnormal >= NOTABLE or most is None][:most]
    if shown:
        yield "Gradients too small for their format, as shares of those that are not 0:"
    for flush in shown:
        yield (
            f"  {flush.zeroed:6.1%} became 0, {flush.subnormal:6.1%} subnormal: {flush.record.op} at "
            f"{place(flush.record)}; {_keeping(flush)}"
        )
    room = traced.room
    if shown and room is not None and not room.fits:
        yield (
            f"No one scale keeps them all. Up to {_power(room.ceiling or 1)} nothing overflows, and the larger the "
            "scale, the less is lost."
        )


def _keeping(flush: Flush) -> str:
    """Which scale keeps the smallest of what was lost, where one that float32 holds does."""
    if flush.keeping_scale > FP32.max:
        return "its smallest are kept by no scale"
    return f"kept by a scale of {_power(flush.keeping_scale)}"
