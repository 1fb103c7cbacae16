"""The audit for people: what to change first, then where memory and time go, in tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from mixprec.audit import AuditReport
from mixprec.audit._products import LayerRow
from mixprec.records import Location
from mixprec.report import text
from mixprec.report.findings_text import count, print_findings

__all__ = ["amount", "duration", "headline", "on_top", "place_of", "print_audit", "remark", "speed_facts"]

ROWS = 8
"""Rows of a table that has many."""


def print_audit(screen: Console, report: AuditReport, source_of: Callable[[Location], str | None]) -> None:
    """Print the findings, the memory, the forecast, the speed and the layers."""
    screen.print(headline(report), style="bold")
    for note in report.notes:
        screen.print(f"  note: {note}", style="dim", soft_wrap=True)
    screen.print()
    print_findings(screen, report.findings, source_of)
    screen.print(count(report.findings), style="bold")
    _memory(screen, report)
    _forecast(screen, report)
    _speed(screen, report)
    _layers(screen, report)


def amount(size: float) -> str:
    """`12.5 MiB` and the like, four significant digits at most."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def duration(seconds: float) -> str:
    """`12.5 ms` and the like."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def place_of(location: Location) -> str:
    """`train.py:21`, else the module, else nothing."""
    if location.file is not None:
        name = location.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{location.line}"
    return location.module or ""


def headline(report: AuditReport) -> str:
    """What ran, in one line."""
    what = "training step" if report.trains else "forward pass"
    mixed = f"autocast to {report.low}" if report.mixed else f"{report.precision}, no 16-bit autocast region"
    where = "dry run" if report.measured_on is None else report.measured_on.name or report.measured_on.kind
    return f"One {what} on {where}: {mixed}, {report.op_calls} ops, peak {amount(report.memory.peak)}"


def _section(screen: Console, title: str, note: str = "") -> None:
    screen.print()
    screen.print(title, style="bold")
    if note:
        screen.print(note, style="dim")


def _memory(screen: Console, report: AuditReport) -> None:
    memory = report.memory
    at = place_of(memory.peak_at)
    where = f"The peak is in {memory.peak_phase}" + (f" at {at}" if at else "") + "." if memory.peak_phase else ""
    _section(screen, "Memory by cause", where)
    peak = {(line.kind, line.dtype): line.bytes for line in memory.at_peak}
    keys = list(dict.fromkeys([*((line.kind, line.dtype) for line in memory.lines), *peak]))
    full = {(line.kind, line.dtype): line.bytes for line in memory.lines}
    rows = [
        (
            kind.value,
            dtype,
            amount(full.get((kind, dtype), 0)) if (kind, dtype) in full else "",
            amount(peak.get((kind, dtype), 0)),
        )
        for kind, dtype in keys
    ]
    screen.print(text.table(("cause", "dtype", "in all", "at the peak"), rows, right=(2, 3)))
    if memory.reserved is not None and memory.allocated is not None:
        screen.print(f"CUDA's counters: {amount(memory.allocated)} allocated, {amount(memory.reserved)} reserved.")
    if memory.saved:
        _section(screen, "Kept for backward, by module and op")
        rows = [(row.module or "(outside)", row.op, row.dtype, amount(row.bytes)) for row in memory.saved[:ROWS]]
        screen.print(text.table(("module", "op", "dtype", "bytes"), rows, right=(3,)))
    if memory.largest:
        _section(screen, "Largest tensors made in the step")
        single = [
            (" × ".join(map(str, row.shape)), row.dtype, amount(row.bytes), row.op, place_of(row.location))
            for row in memory.largest[:5]
        ]
        screen.print(text.table(("shape", "dtype", "bytes", "op", "where"), single, right=(2,)))


def _forecast(screen: Console, report: AuditReport) -> None:
    _section(screen, "What this model and batch would take in each precision", on_top(report))
    unit, size = _unit(max((row.peak for row in report.forecasts), default=0))
    rows = [
        (
            row.precision,
            *(
                f"{value / size:.1f}"
                for value in (
                    row.weights + row.masters + row.extra,
                    row.gradients,
                    row.state,
                    row.casts,
                    row.saved,
                    row.peak,
                )
            ),
        )
        for row in report.forecasts
    ]
    columns = (f"in {unit}", "weights", "grads", "state", "casts", "saved", "peak")
    screen.print(text.table(columns, rows, right=range(1, 7)))


def on_top(report: AuditReport) -> str:
    """What the table does not hold, and how much it was where that was measured."""
    inside = report.memory.inside
    if inside is None:
        return "Predicted for tensors; what kernels allocate inside comes on top (not measured)."
    much = inside >= report.memory.peak / 100
    at = f"here it was {amount(inside)} in {report.precision}" if much else "here it was next to nothing"
    return f"Predicted for tensors; what kernels allocate inside comes on top, {at}."


def _unit(size: float) -> tuple[str, int]:
    """The unit that a column of sizes up to `size` reads best in."""
    return ("GiB", 2**30) if size >= 10 * 2**30 else ("MiB", 2**20) if size >= 2**20 else ("KiB", 2**10)


def _speed(screen: Console, report: AuditReport) -> None:
    _section(screen, "Speed")
    screen.print(text.pairs(speed_facts(report)))


def speed_facts(report: AuditReport) -> list[tuple[str, str]]:
    """(name, value) of everything about time that is one number."""
    products, bound, casts, timing = report.products, report.bound, report.casts, report.timing
    waits = [] if timing.data_share is None else [("waiting for data", f"{100 * timing.data_share:.0f} % of the step")]
    return [
        ("products", f"{products.flops:.3g} FLOPs per step, {100 * products.low_share:.0f} % on 16-bit inputs"),
        ("casts", f"{casts.count} per step, {amount(casts.bytes)} read and written"),
        ("host syncs", _syncs(report)),
        *waits,
        *((f"step in {row.precision}", f"{duration(row.seconds)} ({row.steps} steps)") for row in timing.steps),
        (
            f"bound on {bound.device}",
            f"at most {bound.speedup:.2f} times as fast as float32"
            + (f", {bound.speedup_over_tf32:.2f} times as TF32" if bound.speedup_over_tf32 is not None else "")
            + (" (if the host kept up, which it does not here)" if bound.host_bound else "")
            + ("" if bound.native else f"; {bound.low_dtype} is emulated there"),
        ),
        ("at peak rates", f"{duration(bound.fp32)} in float32, {duration(bound.low)} in {bound.low_dtype}"),
    ]


def _syncs(report: AuditReport) -> str:
    own = sum(row.count for row in report.syncs if row.by_script)
    others = sum(row.count for row in report.syncs if not row.by_script)
    lines = ", ".join(dict.fromkeys(place_of(row.location) for row in report.syncs if row.by_script))
    return f"{own} per step by the script{f' ({lines})' if lines else ''}, {others} by libraries"


def _layers(screen: Console, report: AuditReport) -> None:
    rows = [
        (
            row.module or row.op,
            row.op,
            row.dtype,
            f"{100 * row.share:.0f} %",
            remark(row),
        )
        for row in report.products.layers[:12]
    ]
    if rows:
        _section(screen, "Products by layer")
        screen.print(text.table(("module", "op", "dtype", "FLOPs", "remark"), rows, right=(3,)))


def remark(row: LayerRow) -> str:
    """Why a layer is not in 16 bits, and the sizes that it should have."""
    sizes = ", ".join(f"{size} → {to}" for size, to in zip(row.unaligned, row.padded, strict=True))
    return "; ".join(part for part in (row.why_not, sizes) if part)
