"""A monitored run in sentences, tables and thinned-out curves: what a terminal, JSON and a page show of it.

Curves are thinned to a size that a page can draw: the mean of each stretch of steps, while every event is kept.
"""

from __future__ import annotations

import math
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mixprec.monitor import ModuleRecord, RankRun, Run, StepRecord
from mixprec.records import Finding
from mixprec.report.kept_steps import KeptStep, kept_steps

__all__ = ["Curve", "Heat", "RunSummary", "SortableTable", "summarise"]

POINTS = 2000
COLUMNS = 160
ROWS = 48
LISTED = 400


@dataclass(frozen=True)
class Curve:
    """Values by step, thinned; `low` and `high` are those of all ranks where there are several."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Heat:
    """Values by row and step; None: not measured."""

    title: str
    note: str
    steps: tuple[int, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    unit: str
    top: float
    danger: bool


@dataclass(frozen=True)
class SortableTable:
    """A table; a cell is what it says and what it is sorted by."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, float | str], ...], ...]
    note: str = ""


@dataclass(frozen=True)
class RunSummary:
    """Everything that is shown of a run."""

    title: str
    lead: str
    findings: tuple[tuple[int, int, Finding], ...]
    curves: tuple[Curve, ...]
    skips: tuple[StepRecord, ...]
    growths: tuple[StepRecord, ...]
    kept: tuple[KeptStep, ...]
    heats: tuple[Heat, ...]
    tables: tuple[SortableTable, ...]
    differences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    data: dict[str, Any] = field(default_factory=dict)


def summarise(run: Run) -> RunSummary:
    """`run` as it is shown. Rank, step and finding of each alert; an alert that several ranks raised is there once."""
    steps = run.steps
    findings, kept = _findings(run), kept_steps(run)
    skipped = [record for record in steps if record.skipped]
    return RunSummary(
        title=_title(run),
        lead=_lead(run, findings, kept),
        findings=findings,
        curves=_curves(run),
        skips=tuple(skipped[-LISTED:]),
        growths=tuple(record for record in steps if record.event == "grow")[-LISTED:],
        kept=kept,
        heats=_heats(steps),
        tables=tuple(t for t in (_modules(steps), _events(steps), _ranks(run)) if t is not None),
        differences=_differences(run),
        facts=_facts(run),
        data={**_data(run), "incidents": [step.document() for step in kept]},
    )


# sentences


def _title(run: Run) -> str:
    command = run.ranks[0].facts.get("command") or [run.folder.name]
    return " ".join(str(part) for part in command)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _lead(run: Run, findings: Sequence[Any], kept: Sequence[KeptStep]) -> str:
    steps = run.steps
    skipped = sum(record.skipped for record in steps)
    benign = sum(record.benign is True for record in steps)
    ranks = f" on each of {len(run.ranks)} ranks" if len(run.ranks) > 1 else ""
    skips = "none skipped" if not skipped else f"{skipped} skipped, of which {benign} benign"
    alerts = "No alerts." if not findings else f"{_count(len(findings), 'alert')}."
    if kept:
        alerts += f" {_count(len(kept), 'step')} kept for replay."
    broken = "" if all(rank.ended for rank in run.ranks) else " The run did not end in the ordinary way."
    return f"{_count(len(steps), 'optimizer step')}{ranks}, {skips}. {alerts}{broken}"


def _findings(run: Run) -> tuple[tuple[int, int, Finding], ...]:
    first: dict[tuple[int, str], tuple[int, int, Finding]] = {}
    for rank in run.ranks:
        for step, finding in rank.findings:
            first.setdefault((step, finding.code), (rank.rank, step, finding))
    return tuple(sorted(first.values(), key=lambda found: found[1]))


def _facts(run: Run) -> tuple[tuple[str, str], ...]:
    facts, steps = run.ranks[0].facts, run.steps
    seconds = [record.seconds for record in steps[1:] if record.seconds is not None]
    memory = [record.memory for record in steps if record.memory is not None]
    versions = facts.get("versions") or {}
    rows = {
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts["started"])) if "started" in facts else "",
        "starts": str(run.ranks[0].starts) if run.ranks[0].starts > 1 else "",
        "device": str(facts.get("device", "")),
        "optimizers": ", ".join(facts.get("optimizers", ())),
        "parameters": f"{facts['parameters']:,}" if "parameters" in facts else "",
        "computes in": next((r.format for r in reversed(steps) if r.format), ""),
        "median step": f"{statistics.median(seconds) * 1e3:.2f} ms" if seconds else "",
        "memory at most": f"{max(memory) / 2**20:,.0f} MiB" if memory else "",
        "level": str(facts.get("level", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "lines lost": str(sum(rank.torn for rank in run.ranks) or ""),
        "folder": str(run.folder),
    }
    return tuple((name, value) for name, value in rows.items() if value)


# curves


def _curves(run: Run) -> tuple[Curve, ...]:
    """Loss, scale, norms and learning rate; those that were never measured are left out."""
    names = ("loss", "scale", "grad_norm", "clipped_norm", "lr", "logit", "update_ratio", "unchanged")
    curves = (_curve(run, name) for name in names)
    return tuple(curve for curve in curves if any(value is not None for value in curve.values))


def _curve(run: Run, name: str) -> Curve:
    series = [
        [(record.step, value) for record in rank.steps if (value := getattr(record, name)) is not None]
        for rank in run.ranks
    ]
    if len(series) == 1:
        steps, values = _thinned(series[0])
        return Curve(name, steps, values)
    merged: dict[int, list[float]] = {}
    for step, value in (pair for one in series for pair in one):
        if math.isfinite(value):
            merged.setdefault(step, []).append(value)
    ordered = sorted(merged.items())
    steps, means = _thinned([(step, sum(v) / len(v)) for step, v in ordered])
    if name == "scale":
        return Curve(name, steps, means)
    low = _thinned([(step, min(v)) for step, v in ordered])[1]
    high = _thinned([(step, max(v)) for step, v in ordered])[1]
    return Curve(name, steps, means, low, high)


def _thinned(pairs: Sequence[tuple[int, float | None]]) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """At most `POINTS` points: the first step of each stretch, and the mean of its finite values."""
    stretch = max(1, math.ceil(len(pairs) / POINTS))
    chunks = [pairs[start : start + stretch] for start in range(0, len(pairs), stretch)]
    return tuple(chunk[0][0] for chunk in chunks), tuple(_mean(value for _, value in chunk) for chunk in chunks)


def _mean(values: Iterable[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


# heat maps


def _heats(steps: Sequence[StepRecord]) -> tuple[Heat, ...]:
    looks = _few([record for record in steps if record.modules], COLUMNS)
    narrow = any(module.dtype == "fp16" for record in looks for module in record.modules.values())
    top = 16.0 if narrow else 128.0
    kinds: tuple[tuple[str, str, Callable[[ModuleRecord], float | None], str, float, bool], ...] = (
        (
            "Headroom of activations",
            "Bits between a module's largest output and the maximum of its format. At 0 it overflows.",
            lambda m: m.headroom,
            "bits",
            top,
            True,
        ),
        (
            "Headroom of scaled gradients",
            "The same of the gradients of outputs and of parameters, as the loss scale multiplies them; near 0 the "
            "scale is as high as it can be.",
            _gradient_headroom,
            "bits",
            top,
            True,
        ),
        (
            "Underflow of gradients",
            "Share of a module's weight-gradient elements, of those not zero, that are subnormal in the 16-bit format.",
            _underflow,
            "",
            1.0,
            False,
        ),
    )
    heats = (_heat(looks, *kind) for kind in kinds)
    return tuple(heat for heat in heats if heat.rows)


def _gradient_headroom(module: ModuleRecord) -> float | None:
    """The smaller one; in a compiled model that of parameters is known, and of outputs only the whole model's."""
    known = [bits for bits in (module.grad_headroom, module.weight_headroom) if bits is not None]
    return min(known, default=None)


def _underflow(module: ModuleRecord) -> float | None:
    if module.weight_subnormal is None or module.weight_zero is None:
        return None
    rest = 1.0 - module.weight_zero
    return module.weight_subnormal / rest if rest > 0 else 1.0


def _heat(
    looks: Sequence[StepRecord],
    title: str,
    note: str,
    value: Callable[[ModuleRecord], float | None],
    unit: str,
    top: float,
    danger: bool,
) -> Heat:
    paths = list(dict.fromkeys(path for record in looks for path in record.modules))
    table = {path: [_cell(record, path, value) for record in looks] for path in paths}
    known = {path: [v for v in row if v is not None] for path, row in table.items()}
    shown = [path for path in paths if known[path]]
    if len(shown) > ROWS:
        worst = sorted(shown, key=lambda path: min(known[path]) if danger else -max(known[path]))[:ROWS]
        note += f" The {ROWS} of {len(shown)} modules that are closest to trouble."
        shown = [path for path in shown if path in set(worst)]
    rows = tuple(tuple(table[path]) for path in shown)
    return Heat(title, note, tuple(r.step for r in looks), tuple(shown), rows, unit, top, danger)


def _cell(record: StepRecord, path: str, value: Callable[[ModuleRecord], float | None]) -> float | None:
    module = record.modules.get(path)
    return None if module is None else value(module)


def _few(records: Sequence[StepRecord], most: int) -> list[StepRecord]:
    stride = max(1, math.ceil(len(records) / most))
    return list(records[::stride])


# tables


def _modules(steps: Sequence[StepRecord]) -> SortableTable | None:
    seen: dict[str, list[tuple[ModuleRecord, bool]]] = {}
    for record in steps:
        for path, module in record.modules.items():
            seen.setdefault(path, []).append((module, record.applied))
    if not seen:
        return None
    rows = tuple(_module_row(path, modules) for path, modules in seen.items())
    columns = ("module", "format", "largest output", "least headroom", "least gradient headroom", "zero", "subnormal")
    return SortableTable(
        "Modules", columns, rows, "The worst that was seen of each, in bits and shares; of gradients, in applied steps."
    )


def _module_row(path: str, looks: Sequence[tuple[ModuleRecord, bool]]) -> tuple[tuple[str, float | str], ...]:
    modules = [module for module, _ in looks]
    dtype = next((m.dtype for m in reversed(modules) if m.dtype), "") or ""
    amax = [max(abs(m.low), abs(m.high)) for m in modules if m.low is not None and m.high is not None]
    room = [m.headroom for m in modules if m.headroom is not None]
    headroom = (_gradient_headroom(m) for m, applied in looks if applied)
    gradients = [bits for bits in headroom if bits is not None]
    zero = [m.weight_zero if m.weight_zero is not None else m.zero for m in modules]
    low = [m.weight_subnormal if m.weight_subnormal is not None else m.subnormal for m in modules]
    return (
        (path, path),
        (dtype, dtype),
        _number(max(amax, key=lambda v: math.inf if math.isnan(v) else v, default=None)),
        _bits(min(room, default=None)),
        _bits(min(gradients, default=None)),
        _number(max((v for v in zero if v is not None), default=None), "{:.1%}"),
        _number(max((v for v in low if v is not None), default=None), "{:.1%}"),
    )


def _number(value: float | None, form: str = "{:.4g}") -> tuple[str, float | str]:
    if value is None:
        return "–", math.inf
    return (form.format(value) if math.isfinite(value) else str(value)), value if not math.isnan(value) else -math.inf


def _bits(value: float | None) -> tuple[str, float | str]:
    return ("overflowed", value) if value == -math.inf else _number(value, "{:.1f}")


def _power(value: float | None) -> tuple[str, float | str]:
    """A loss scale as the power of 2 that it nearly always is."""
    exact = value is not None and 0 < value < math.inf and math.frexp(value)[0] == 0.5
    return (f"2^{round(math.log2(value))}", value) if exact and value is not None else _number(value)


def _events(steps: Sequence[StepRecord]) -> SortableTable | None:
    told = [record for record in steps if record.skipped or record.event in ("grow", "lower")]
    if not told:
        return None
    rows = tuple(
        (
            (str(record.step), record.step),
            (_what(record), _what(record)),
            _power(record.scale),
            _power(record.scale_after),
            _number(record.loss),
            (record.why or "–", record.why),
        )
        for record in told[-LISTED:]
    )
    more = f"The last {LISTED} of {len(told)}." if len(told) > LISTED else ""
    return SortableTable("Events", ("step", "event", "scale", "scale after", "loss", "why"), rows, more)


def _what(record: StepRecord) -> str:
    if record.skipped:
        return "skipped, benign" if record.benign else "skipped"
    return "scale grew" if record.event == "grow" else "scale lowered"


def _ranks(run: Run) -> SortableTable | None:
    if len(run.ranks) < 2:
        return None
    columns = ("rank", "steps", "skipped", "not benign", "last loss", "last scale", "median step ms", "alerts")
    return SortableTable("Ranks", columns, tuple(_rank_row(rank) for rank in run.ranks))


def _rank_row(rank: RankRun) -> tuple[tuple[str, float | str], ...]:
    steps = rank.steps
    seconds = [record.seconds * 1e3 for record in steps[1:] if record.seconds is not None]
    counts = (len(steps), sum(r.skipped for r in steps), sum(r.benign is False for r in steps))
    return (
        (str(rank.rank), rank.rank),
        *((str(count), count) for count in counts),
        _number(steps[-1].loss if steps else None),
        _power(steps[-1].scale_after if steps else None),
        _number(statistics.median(seconds) if seconds else None, "{:.2f}"),
        (str(len(rank.findings)), len(rank.findings)),
    )


def _differences(run: Run) -> tuple[str, ...]:
    """Where ranks do not agree although they must: on the scale, on skipping, and on how many steps there were."""
    if len(run.ranks) < 2:
        return ()
    told = []
    for what, name in (("loss scale", "scale"), ("outcome", "reason")):
        of = operator.attrgetter(name)
        apart = [(step, ranks) for step, ranks in run.by_step().items() if len({of(r) for r in ranks.values()}) > 1]
        if apart:
            step, ranks = apart[0]
            values = ", ".join(f"rank {rank}: {of(record)}" for rank, record in sorted(ranks.items()))
            told.append(
                f"The {what} differs between ranks in {_count(len(apart), 'step')}, first in {step} ({values})."
            )
    lengths = {rank.rank: len(rank.steps) for rank in run.ranks}
    if max(lengths.values()) - min(lengths.values()) > 1:
        told.append("Ranks recorded different numbers of steps: " + _listed(lengths) + ".")
    return tuple(told)


def _listed(values: dict[int, int]) -> str:
    return ", ".join(f"rank {rank}: {value}" for rank, value in values.items())


def _data(run: Run) -> dict[str, Any]:
    """Totals by rank, for programs."""
    return {
        "folder": str(run.folder),
        "ranks": [
            {
                "rank": rank.rank,
                "steps": len(rank.steps),
                "skipped": sum(record.skipped for record in rank.steps),
                "benign": sum(record.benign is True for record in rank.steps),
                "ended": rank.ended,
                "starts": rank.starts,
                "torn": rank.torn,
                "last": rank.steps[-1] if rank.steps else None,
            }
            for rank in run.ranks
        ],
    }
