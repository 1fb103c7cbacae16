"""A page is a template filled with a record; what it needs besides is in the page itself."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from mixprec._version import __version__
from mixprec.audit import AuditReport
from mixprec.errors import MissingExtraError
from mixprec.report.comparison import Comparison
from mixprec.report.html._audit_view import audit_view
from mixprec.report.html._figure import figures
from mixprec.report.html._run_figure import run_charts
from mixprec.report.run_summary import RunSummary

__all__ = ["audit_page", "comparison_page", "run_page"]


def comparison_page(comparison: Comparison) -> str:
    """The page of `comparison`: about 5 MB, nearly all of it plotly.js.

    Raises: MissingExtraError when jinja2 or plotly is not installed.
    """
    return _render("comparison.html", report=comparison, figures=figures(comparison.charts))


def run_page(summary: RunSummary, page: Path | None = None) -> str:
    """The page of a monitored run: about 5 MB, nearly all of it plotly.js. Links lead from `page`, by default a file in
    the run's folder.

    Raises: MissingExtraError when jinja2 or plotly is not installed.
    """
    if page is not None:
        summary = replace(summary, kept=tuple(step.linked_from(page) for step in summary.kept))
    charts = run_charts(summary)
    several = any(table.title == "Ranks" for table in summary.tables)
    drawn = [chart["figure"] for chart in charts]
    return _render("run.html", summary=summary, charts=charts, several=several, figures=drawn)


def audit_page(report: AuditReport) -> str:
    """The page of an audit: memory as bars, a table per layer, what autocast did as a tree that folds and filters.

    Raises: MissingExtraError when jinja2 is not installed.
    """
    return _render("audit.html", audit=audit_view(report))


def _render(template: str, **values: Any) -> str:
    drawn = bool(values.get("figures"))
    page: str = (
        _environment()
        .get_template(template)
        .render(version=__version__, plotly_js=_extra("plotly.offline").get_plotlyjs() if drawn else "", **values)
    )
    return page


@functools.cache
def _environment() -> Any:
    jinja2 = _extra("jinja2")
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(name: str) -> str:
    return resources.files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")


def _extra(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(module.partition(".")[0], "report", "An HTML page") from error
