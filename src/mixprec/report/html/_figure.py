"""A chart as the JSON that plotly.js draws; colours are left to the page, which knows light from dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mixprec.report.comparison import Chart, Series

__all__ = ["figures"]

DASHES = ("solid", "dot", "dash", "dashdot", "longdash", "longdashdot")


def figures(charts: Sequence[Chart]) -> list[dict[str, Any]]:
    """`{"data", "layout"}` for plotly.js, per chart. A run has the same look in every chart of a page.

    Runs differ by dash as well as by colour; `meta` is the index of the colour. Gaps are null.
    """
    looks = {name: index for index, name in enumerate(dict.fromkeys(s.name for chart in charts for s in chart.series))}
    return [
        {"data": [_trace(series, looks[series.name]) for series in chart.series], "layout": _layout(chart)}
        for chart in charts
    ]


def _layout(chart: Chart) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": chart.x_label}, "automargin": True},
        "yaxis": {"title": {"text": chart.y_label}, "automargin": True, **_axis(chart)},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0},
        "hovermode": "x unified",
        "height": 380,
    }


def _trace(series: Series, look: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": series.name,
        "meta": look,
        "x": list(series.x),
        "y": [value if value is not None and math.isfinite(value) else None for value in series.y],
        "line": {"dash": DASHES[look % len(DASHES)], "width": 2, "shape": "hv" if series.steps else "linear"},
        "hovertemplate": "%{y:.4g}",
    }


def _axis(chart: Chart) -> dict[str, Any]:
    if chart.log == 10:
        return {"type": "log", "dtick": "D2"}
    return {"type": "log", **_powers_of_two(chart)} if chart.log == 2 else {}


def _powers_of_two(chart: Chart) -> dict[str, Any]:
    """Ticks at powers of two: every one where they are few, else about eight."""
    values = [y for series in chart.series for y in series.y if y is not None and math.isfinite(y) and y > 0]
    if not values:
        return {}
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    stride = max(1, math.ceil((high - low) / 8))
    exponents = range(low, high + stride, stride)
    return {"tickvals": [2.0**e for e in exponents], "ticktext": [f"2<sup>{e}</sup>" for e in exponents]}
