"""The page of a diagnosis: the verdict first, its evidence, the patch, and the curves of all arms over one axis."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from typing import Any

from mixprec.doctor import Arm, Diagnosis
from mixprec.doctor._arm import StepRecord
from mixprec.records import Evidence, Severity, Verdict
from mixprec.report import text
from mixprec.report.comparison import Chart, Series
from mixprec.report.diagnosis_text import COLUMNS, arm_rows, value_of
from mixprec.report.html._figure import figures
from mixprec.report.html._page import _render

__all__ = ["charts_of", "diagnosis_page", "view_of"]


def diagnosis_page(diagnosis: Diagnosis) -> str:
    """The page of what the doctor found: about 5 MB, nearly all of it plotly.js.

    Raises: MissingExtraError when jinja2 or plotly is not installed.
    """
    view = view_of(diagnosis)
    return _render("diagnosis.html", view=view, figures=figures(view["charts"]))


def view_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the template needs, as plain values."""
    known = diagnosis.examination
    said = {verdict.code for verdict in diagnosis.verdicts}
    rest = [f for f in known.lint if f.code not in said and f.severity is not Severity.INFO]
    return {
        "title": _title(diagnosis),
        "command": shlex.join(known.command),
        "interrupted": diagnosis.interrupted,
        "problem": diagnosis.problem if not diagnosis.verdicts else None,
        "open_question": diagnosis.open_question,
        "healthy": diagnosis.healthy and not diagnosis.verdicts,
        "verdicts": [_verdict(verdict) for verdict in diagnosis.verdicts],
        "patch": _patch(diagnosis),
        "looked_at": [(fact.what, value_of(fact)) for fact in diagnosis.looked_at] if not diagnosis.verdicts else [],
        "charts": charts_of(known.arms),
        "columns": COLUMNS,
        "arms": arm_rows(diagnosis),
        "lint": [f"{text.place(f.location)}: {f.code} {f.message}" for f in rest],
    }


def _title(diagnosis: Diagnosis) -> str:
    first = diagnosis.verdict
    if first is not None:
        return first.message
    if diagnosis.problem is not None:
        return "The script could not be examined"
    return "Nothing wrong" if diagnosis.open_question is None else "It fails, and no cause was found"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "code": verdict.code,
        "name": verdict.name,
        "severity": verdict.severity.value,
        "message": verdict.message,
        "place": text.place(verdict.location),
        "confidence": verdict.confidence.value,
        "fix": None if verdict.fix is None else verdict.fix.text,
        "tried": None if verdict.fix_tried is None else f"{verdict.fix_tried.what} {value_of(verdict.fix_tried)}",
        "evidence": [_fact(fact) for fact in verdict.evidence],
        "ruled_out": [_fact(fact) for fact in verdict.ruled_out],
    }


def _fact(fact: Evidence) -> dict[str, str]:
    step = "" if fact.step is None else str(fact.step)
    return {"what": fact.what, "value": value_of(fact), "arm": fact.arm or "", "step": step}


def _patch(diagnosis: Diagnosis) -> dict[str, Any] | None:
    patch = diagnosis.patch
    if patch is None:
        return None
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = [(kinds.get(line[:1], ""), line) for line in patch.diff.splitlines()]
    return {"about": patch.about, "helped": patch.helped, "arm": patch.arm, "lines": lines}


def charts_of(arms: tuple[Arm, ...]) -> tuple[Chart, ...]:
    """Loss, gradient norm, loss scale and weight change of every arm, where any has them."""
    wanted: tuple[tuple[str, str, int, Callable[[StepRecord], float | None]], ...] = (
        ("Loss", "loss", 0, lambda step: step.loss),
        ("Gradient norm, unscaled", "norm", 10, lambda step: step.grad_norm),
        ("Loss scale", "scale", 2, lambda step: step.scale),
        ("Change of the weights per step", "relative", 10, lambda step: step.update_ratio),
    )
    charts = (_chart(title, label, log, arms, read) for title, label, log, read in wanted)
    return tuple(chart for chart in charts if chart.series)


def _chart(
    title: str, label: str, log: int, arms: tuple[Arm, ...], read: Callable[[StepRecord], float | None]
) -> Chart:
    series = []
    for arm in arms:
        steps = arm.of(arm.steps[0].optimizer, arm.steps[0].rank) if arm.steps else ()
        values = tuple(_finite(read(step)) for step in steps)
        if any(value is not None for value in values):
            series.append(Series(arm.name, tuple(float(step.index) for step in steps), values))
    seen = [abs(value) for one in series for value in one.y if value]
    wide = bool(seen) and max(seen) > 30 * min(seen)
    return Chart(title, "step of the first optimizer", label, tuple(series), log if wide else 0, "Gaps are Inf or NaN.")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
