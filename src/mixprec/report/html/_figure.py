"""A chart as the JSON that plotly.js draws; colours are left to the page, which knows light from dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mixprec.report.comparison import Band, Chart, Series

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
        "xaxis": {"title": {"text": chart.x_label}, "automargin": True, **_x_axis(chart)},
        "yaxis": {"title": {"text": chart.y_label}, "automargin": True, **_axis(chart)},
        "margin": {"l": 8, "r": 8, "t": 28 if chart.bands else 8, "b": 8},
        "legend": {"orientation": "h", "y": -0.25, "yanchor": "top", "x": 0},
        "hovermode": "x unified",
        "height": 380,
        "shapes": [_shape(band) for band in chart.bands],
        "annotations": [_label(band) for band in chart.bands],
    }


def _trace(series: Series, look: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": series.name,
        "meta": look,
        "x": list(series.x),
        "y": [value if value is not None and math.isfinite(value) else None for value in series.y],
        "line": {
            "dash": "solid" if series.steps else DASHES[look % len(DASHES)],
            "width": 2,
            "shape": "hv" if series.steps else "linear",
        },
        "hovertemplate": "%{y:.4g}",
    }


def _shape(band: Band) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": band.low,
        "x1": band.high,
        "y0": 0,
        "y1": 1,
        "fillcolor": "rgba(128,128,128,0.16)",
        "line": {"width": 0},
        "layer": "below",
    }


def _label(band: Band) -> dict[str, Any]:
    return {
        "text": band.name,
        "xref": "x",
        "yref": "paper",
        "x": (band.low + band.high) / 2,
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
    }


def _x_axis(chart: Chart) -> dict[str, Any]:
    if not chart.x_powers:
        return {}
    values = [x for series in chart.series for x in series.x]
    low, high = math.floor(min(values)), math.ceil(max(values))
    stride = max(1, math.ceil((high - low) / 8))
    ticks = range(low, high + 1, stride)
    return {"tickvals": list(ticks), "ticktext": [f"2<sup>{e}</sup>" for e in ticks]}


def _axis(chart: Chart) -> dict[str, Any]:
    """Ticks that can be read alone: powers of two, or 1, 2 and 5 of each decade (powers of ten where many fit)."""
    values = [y for series in chart.series for y in series.y if y is not None and math.isfinite(y) and y > 0]
    if not chart.log or not values:
        return {}
    ticks = _twos(values) if chart.log == 2 else _tens(values)
    return {"type": "log", "tickvals": list(ticks), "ticktext": list(ticks.values())}


def _twos(values: Sequence[float]) -> dict[float, str]:
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    stride = max(1, math.ceil((high - low) / 8))
    return {2.0**e: f"2<sup>{e}</sup>" for e in range(low, high + stride, stride)}


def _tens(values: Sequence[float]) -> dict[float, str]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    digits = (1, 2, 5) if high - low <= 3 else (1,)
    return {digit * 10.0**e: f"{digit * 10.0**e:g}" for e in range(low, high + 1) for digit in digits}
