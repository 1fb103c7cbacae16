"""A page is complete in itself, holds what the record holds, and breaks on nothing that a record can contain."""

from __future__ import annotations

import html.parser
import json
import math
import re
import sys

import pytest

from mixprec.errors import MissingExtraError
from mixprec.report.comparison import Band, Chart, Comparison, Grid, Outcome, Series
from mixprec.report.html import comparison_page
from mixprec.report.html._figure import figures

VOID = {"meta", "link", "br", "hr", "img", "input"}

SCALE = Series("fp16-mixed", (0, 1, 2), (65536.0, 32768.0, 32768.0), steps=True)
SIZES = Series("fp32", (-26.0, -20.0), (0.25, 0.75))
LOSS = Series("fp32", (0, 1, 2), (2.0, math.nan, None))
REPORT = Comparison(
    "Six precisions",
    "A lead.",
    (Outcome("fp32", True, "Worked."), Outcome(".half()", False, "</script><b>Failed & fell.")),
    (Grid("Result", ("run", "final loss"), (("fp32", "0.10"), (".half()", "nan"))),),
    (
        Chart("Loss", "step", "loss", (LOSS, Series("fp16-mixed", (0, 1), (2.0, 1.0))), log=10),
        Chart("Scale", "step", "scale", (SCALE,), log=2),
        Chart("Sizes", "size", "share", (SIZES,), bands=(Band("zero", -26.0, -25.0),), x_powers=True),
    ),
    (("machine", "2 cores"),),
    ("Counted from tensors.",),
)


class Reader(html.parser.HTMLParser):
    """Checks that tags nest, and collects text and every address that the page would load."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loads, self.labels = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]
        self.labels += [attributes["data-label"]] if "data-label" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data.strip())


@pytest.fixture(scope="module")
def page() -> str:
    """The page of the report above."""
    return comparison_page(REPORT)


@pytest.fixture(scope="module")
def read(page) -> Reader:
    """The same, parsed."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_the_page_is_well_formed_and_loads_nothing(page, read):
    """Tags nest and close, and no element and no style refers to another file or to the network."""
    assert read.open == []
    assert read.loads == []
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL))
    assert "url(" not in styles
    assert "@import" not in styles


def test_what_the_record_says_is_on_the_page(read):
    """Title, lead, verdicts, sentences, cells, facts and notes are there as text; markup in them is only text."""
    shown = " ".join(read.text)

    for words in ("Six precisions", "A lead.", "Worked.", "</script><b>Failed & fell.", "did not train", "0.10"):
        assert words in shown
    for words in ("machine", "2 cores", "Counted from tensors."):
        assert words in shown


def test_cells_are_labelled_for_narrow_screens(read):
    """On a phone rows become cards, so each cell carries its column's name."""
    assert read.labels == ["run", "final loss"] * 2


def figures_of(page):
    """The figures as the page hands them to plotly.js."""
    (text,) = re.findall(r"^const figures = (.*);$", page, re.MULTILINE)
    return json.loads(text, parse_constant=lambda word: word)


def test_curves_are_the_series_with_gaps_where_values_are_missing(page):
    """x, y and names are the record's; NaN and None are gaps, which JSON can hold."""
    loss, scale, _ = figures_of(page)

    assert loss["data"][0]["y"] == [2.0, None, None]
    assert scale["data"][0]["y"] == [65536.0, 32768.0, 32768.0]
    assert scale["data"][0]["line"]["shape"] == "hv"
    assert scale["layout"]["yaxis"]["tickvals"] == [2.0**15, 2.0**16]


def test_a_run_looks_the_same_in_every_chart_and_unlike_the_others(page):
    """Colour belongs to the run's name, not to its place in a chart; curves of one chart differ by dash as well."""
    loss, scale, _ = figures_of(page)
    colours = {trace["name"]: trace["meta"] for trace in loss["data"]}

    assert len(set(colours.values())) == len(colours)
    assert len({trace["line"]["dash"] for trace in loss["data"]}) == len(loss["data"])
    assert [trace["meta"] for trace in scale["data"]] == [colours["fp16-mixed"]]


def test_bands_are_drawn_with_their_names(page):
    """A named stretch of the x axis becomes a rectangle behind the curves and a label over it."""
    *_, sizes = figures_of(page)

    assert [(shape["x0"], shape["x1"]) for shape in sizes["layout"]["shapes"]] == [(-26.0, -25.0)]
    assert [label["text"] for label in sizes["layout"]["annotations"]] == ["zero"]
    assert sizes["layout"]["xaxis"]["ticktext"][0] == "2<sup>-26</sup>"


@pytest.mark.parametrize(
    ("values", "log", "first", "last"),
    [
        ((0.02, 0.3), 10, "0.01", "5"),
        ((1e-6, 100.0), 10, "1e-06", "100"),
        ((1.0, 65536.0), 2, "2<sup>0</sup>", "2<sup>16</sup>"),
        ((4.0, 4.0), 2, "2<sup>2</sup>", "2<sup>2</sup>"),
    ],
)
def test_ticks_cover_the_values_and_can_be_read_alone(values, log, first, last):
    """Each tick has its whole number; few decades get 1, 2 and 5, many get powers of ten, scales get powers of two."""
    (drawn,) = figures([Chart("T", "x", "y", (Series("a", (0, 1), values),), log=log)])

    ticks = drawn["layout"]["yaxis"]["ticktext"]
    assert (ticks[0], ticks[-1]) == (first, last)
    assert 1 <= len(ticks) <= 10


def test_light_dark_and_phone_are_served(page):
    """The page follows the reader's colour scheme and the width of the screen."""
    assert "@media (prefers-color-scheme: dark)" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def test_without_charts_the_page_is_small():
    """plotly.js is written into the page only where there is something to draw."""
    bare = Comparison("T", "L", (), ())

    assert len(comparison_page(bare)) < 10_000


@pytest.mark.parametrize("package", ["jinja2", "plotly"])
def test_a_missing_package_becomes_one_error_that_names_the_extra(monkeypatch, package):
    """Without jinja2 or plotly the error says which package, which extra, and how to install it."""
    from mixprec.report.html import _page

    _page._environment.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingExtraError, match=rf"needs the package '{package}'.*pip install 'mixprec\[report\]'"):
        comparison_page(REPORT)
    _page._environment.cache_clear()
