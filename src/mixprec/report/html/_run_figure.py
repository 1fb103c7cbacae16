"""The charts of a run as the JSON that plotly.js draws; colours are left to the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mixprec.monitor import StepRecord
from mixprec.report.kept_steps import KeptStep
from mixprec.report.run_summary import Curve, Heat, RunSummary

__all__ = ["run_charts"]

MARKS = (
    ("skipped, benign", "--soft", "triangle-down"),
    ("skipped", "--bad", "x"),
    ("scale grew", "--good", "triangle-up"),
)

KEPT_AT = 0.03
"""Height at which marks of kept steps are, of the chart's."""


def run_charts(summary: RunSummary) -> list[dict[str, Any]]:
    """`{"title", "note", "figure"}` of each chart, in order: the course of the run, norms, then heat maps."""
    curves = {curve.name: curve for curve in summary.curves}
    charts = [
        _course(curves, summary),
        _lines(
            "Gradient norm", "Before clipping, and after it where gradients were clipped.", curves, _NORMS, log=True
        ),
        _lines("Learning rate", "", curves, {"lr": "learning rate"}),
        _lines("Largest logit", "The largest magnitude that the whole model returns.", curves, {"logit": "logit"}),
        _lines("Update by weight", "How much a step changes, relative to the weights.", curves, _UPDATES, log=True),
        *(_heat(heat) for heat in summary.heats),
    ]
    return [chart for chart in charts if chart is not None]


_NORMS = {"grad_norm": "before clipping", "clipped_norm": "after clipping"}
_UPDATES = {"update_ratio": "update to weight ratio"}


def _course(curves: dict[str, Curve], summary: RunSummary) -> dict[str, Any] | None:
    """Loss to the left, scale to the right, events where they happened."""
    loss, scale = curves.get("loss"), curves.get("scale")
    if loss is None and scale is None:
        return None
    data = [*(_traces(loss, "loss", 0) if loss else []), *(_scale(scale) if scale else []), *_marks(summary, scale)]
    layout = _layout("loss", 420)
    if summary.kept:
        data.append(_kept(summary.kept))
        layout["yaxis3"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    values = [value for value in (loss.values if loss else ()) if value is not None]
    if values and 0 < 50 * min(values) < max(values):
        layout["yaxis"] |= {"type": "log", "exponentformat": "power", "dtick": 1}
    if scale:
        layout["yaxis2"] = {
            "title": {"text": "loss scale"},
            "overlaying": "y",
            "side": "right",
            "automargin": True,
            "showgrid": False,
            **_powers(scale),
        }
    notes = []
    if scale:
        notes.append(
            "Both over the same steps. Marks are steps that were skipped, and steps after which the scale grew."
        )
    if summary.kept:
        notes.append("Below, the steps that were kept for replay.")
    return {
        "title": "Loss and loss scale" if scale else "Loss",
        "note": " ".join(notes),
        "figure": {"data": data, "layout": layout},
    }


def _kept(steps: Sequence[KeptStep]) -> dict[str, Any]:
    """Marks along the lower edge, whatever the curves do."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "kept for replay",
        "meta": "--warn",
        "x": [step.step for step in steps],
        "y": [KEPT_AT] * len(steps),
        "yaxis": "y3",
        "text": [step.name for step in steps],
        "marker": {"symbol": "diamond", "size": 10},
        "hovertemplate": "%{text}",
    }


def _scale(curve: Curve) -> list[dict[str, Any]]:
    (trace,) = _traces(curve, "loss scale", 1)
    return [{**trace, "yaxis": "y2", "line": {"width": 2, "shape": "hv", "dash": "dot"}}]


def _powers(curve: Curve) -> dict[str, Any]:
    logs = [math.log2(value) for value in curve.values if value is not None and value > 0]
    if not logs:
        return {}
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    stride = max(1, math.ceil((high - low) / 8))
    ticks = range(low - 1, high + 2, stride)
    return {
        "type": "log",
        "tickvals": [2.0**e for e in ticks],
        "ticktext": [f"2<sup>{e}</sup>" for e in ticks],
        "range": [math.log10(2.0) * (low - 1), math.log10(2.0) * (high + 1)],
    }


def _marks(summary: RunSummary, scale: Curve | None) -> list[dict[str, Any]]:
    groups = (
        [record for record in summary.skips if record.benign],
        [record for record in summary.skips if not record.benign],
        summary.growths,
    )
    return [
        _mark(name, colour, symbol, records)
        for (name, colour, symbol), records in zip(MARKS, groups, strict=True)
        if records and scale is not None
    ]


def _mark(name: str, colour: str, symbol: str, records: Sequence[StepRecord]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "meta": colour,
        "x": [record.step for record in records],
        "y": [record.scale for record in records],
        "yaxis": "y2",
        "text": [record.why or f"to {record.scale_after:g}" for record in records],
        "marker": {"symbol": symbol, "size": 10},
        "hovertemplate": "%{text}",
    }


def _lines(
    title: str, note: str, curves: dict[str, Curve], names: dict[str, str], *, log: bool = False
) -> dict[str, Any] | None:
    shown = [(curves[name], label) for name, label in names.items() if name in curves]
    if not shown:
        return None
    data = [trace for look, (curve, label) in enumerate(shown) for trace in _traces(curve, label, look)]
    layout = _layout(shown[0][1], 300)
    values = [value for curve, _ in shown for value in curve.values if value is not None]
    if not log and values and min(values) == max(values) > 0:
        layout["yaxis"] |= {"range": [0, 2 * values[0]]}  # a constant is not centred in a range of its own
    if log and values and min(values) > 0:
        layout["yaxis"] |= {
            "type": "log",
            "exponentformat": "power",
            "dtick": 1 if max(values) / min(values) > 20 else None,
        }
    layout["showlegend"] = len(shown) > 1
    return {"title": title, "note": note, "figure": {"data": data, "layout": layout}}


def _traces(curve: Curve, name: str, look: int) -> list[dict[str, Any]]:
    """The curve, and the band between ranks below it."""
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": name if not curve.low else f"{name}, mean of ranks",
        "meta": look,
        "x": curve.steps,
        "y": curve.values,
        "line": {"width": 2},
        "hovertemplate": "%{y:.5g}",
    }
    if not curve.low:
        return [line]
    edge = {**line, "line": {"width": 0}, "hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    return [{**edge, "y": curve.low}, {**edge, "y": curve.high, "fill": "tonexty", "name": "between ranks"}, line]


def _heat(heat: Heat) -> dict[str, Any]:
    trace = {
        "type": "heatmap",
        "meta": "danger" if heat.danger else "share",
        "x": heat.steps,
        "y": list(range(len(heat.rows))),
        "z": [[_shown(value) for value in row] for row in heat.values],
        "text": [
            [_words(name, value, heat) for value in row] for name, row in zip(heat.rows, heat.values, strict=True)
        ],
        "hovertemplate": "step %{x}<br>%{text}<extra></extra>",
        "zmin": 0.0,
        "zmax": heat.top,
        "colorbar": {"title": {"text": heat.unit, "side": "top"}, "tickformat": "" if heat.danger else ".0%"},
        "xgap": 0,
        "ygap": 1,
    }
    layout = _layout("", 90 + 20 * max(3, len(heat.rows)))
    layout["yaxis"] = {
        "automargin": True,
        "autorange": "reversed",
        "tickvals": list(range(len(heat.rows))),
        "names": heat.rows,
        "showgrid": False,
    }
    layout["hovermode"] = "closest"
    layout["xaxis"] |= {"showgrid": False}
    return {"title": heat.title, "note": heat.note, "figure": {"data": [trace], "layout": layout}}


def _shown(value: float | None) -> float | None:
    """Minus infinity is drawn as 0 bits; plotly's JSON has no infinities."""
    return value if value is None or math.isfinite(value) else 0.0


def _words(name: str, value: float | None, heat: Heat) -> str:
    if value is None:
        return name
    if not math.isfinite(value):
        return f"{name}: not finite"
    return f"{name}: {value:.1f} {heat.unit}" if heat.danger else f"{name}: {value:.1%}"


def _layout(y_label: str, height: int) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "step"}, "automargin": True},
        "yaxis": {"title": {"text": y_label}, "automargin": True},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "x unified",
        "height": height,
    }
