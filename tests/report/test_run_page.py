"""The page of a run shows everything that was recorded, loads nothing, and breaks on nothing that a run can contain."""

from __future__ import annotations

import html.parser
import json
import math
import re

import pytest

from mixprec._trace import Origin
from mixprec.monitor import ModuleRecord, RankRun, Run, StepRecord
from mixprec.monitor.incident import IncidentStore, Moment
from mixprec.monitor.replay import Outcome, Replay, Traced, keep_result
from mixprec.records import Finding, Fix, Location, OpRecord, Severity, TensorStats
from mixprec.report.html import run_page
from mixprec.report.run_summary import COLUMNS, POINTS, ROWS, summarise

BAD = Finding(
    "MP012", "scale-collapse", Severity.ERROR, "It <falls>.", Location(module="a.b"), (), Fix("Mend </script>.")
)


def step(number: int, rank: int = 0, **facts) -> StepRecord:
    """A step of a run; every tenth is looked at."""
    modules = {
        f"blocks.{i}": ModuleRecord("fp16", -1.0, 2.0 + i, 15.0 - i, "fp16", 3.0, 0.5, 0.1, 2.0, 0.5, 0.1)
        for i in range(3)
    }
    looked = number % 10 == 0
    usual = {
        "loss": 1.0 / (1 + number) + rank,
        "scale": 65536.0,
        "scale_after": 65536.0,
        "event": "hold",
        "seconds": 0.01,
        "grad_norm": 1.0,
        "lr": 0.1,
        "looked": looked,
        "format": "fp16",
        "modules": modules if looked else {},
    }
    return StepRecord(number, **{**usual, **facts})


def run(*ranks: list[StepRecord], findings=(), **facts) -> Run:
    """A run of these ranks."""
    known = {
        "command": ["train.py", "--lr", "<1>"],
        "started": 1.0,
        "optimizers": ["AdamW"],
        "parameters": 1234,
        **facts,
    }
    return Run(
        "folder",
        tuple(RankRun(rank, known, tuple(steps), tuple(findings), ended=True) for rank, steps in enumerate(ranks)),
    )


SKIP = {
    "reason": "found_inf",
    "benign": False,
    "event": "back_off",
    "scale_after": 32768.0,
    "why": "because",
    "loss": math.nan,
}
USUAL = run(
    [step(i, **(SKIP if i == 7 else {"event": "grow"} if i == 9 else {})) for i in range(60)], findings=[(7, BAD)]
)
RANKS = run([step(i) for i in range(30)], [step(i, 1, **({"scale": 1.0} if i > 20 else {})) for i in range(25)])
ODD = run(
    [
        StepRecord(0),
        StepRecord(1, loss=math.nan),
        StepRecord(2, looked=True, modules={"": ModuleRecord("fp16", -math.inf, math.nan, -math.inf)}),
    ]
)


class Reader(html.parser.HTMLParser):
    """Checks that tags nest, and collects text and every address that the page would load."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loads, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        loading = ("src", "srcset") if tag == "a" else ("src", "href", "srcset")
        self.loads += [value for name, value in attrs if name in loading]
        self.links += [value for name, value in attrs if name == "href" and tag == "a"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data.strip())


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture(scope="module", params=[USUAL, RANKS, ODD], ids=["usual", "ranks", "odd"])
def page(request) -> str:
    return run_page(summarise(request.param))


def test_the_page_is_well_formed_and_loads_nothing(page):
    """Tags nest and close, and nothing refers to another file or to the network."""
    reader = read(page)

    assert reader.open == []
    assert reader.loads == []


def figures(page: str) -> list:
    return json.loads(re.search(r"const figures = (.*);\n", page)[1])


def test_the_charts_are_json_that_every_browser_reads(page):
    """No NaN or infinity is in the data: gaps are null, and what left its format is drawn as 0 bits."""
    for figure in figures(page):
        assert "NaN" not in json.dumps(figure)
        assert "Infinity" not in json.dumps(figure)


def test_what_was_recorded_is_there():
    """Alerts with their fix, marks at skipped and grown steps, heat maps of every module, tables to sort."""
    made = run_page(summarise(USUAL))
    text = " ".join(read(made).text)
    course, *others = figures(made)

    assert "60 optimizer steps, 1 skipped, of which 0 benign. 1 alert." in text
    assert "It <falls>." in text
    assert "Mend </script>." in text
    assert "train.py --lr <1>" in text
    marks = {trace["name"]: trace["x"] for trace in course["data"] if trace["mode"] == "markers"}
    assert marks == {"skipped": [7], "scale grew": [9]}
    heats = [figure for figure in others if figure["data"][0]["type"] == "heatmap"]
    assert len(heats) == 3
    assert heats[0]["layout"]["yaxis"]["names"] == ["blocks.0", "blocks.1", "blocks.2"]
    assert heats[0]["data"][0]["z"] == [[15.0] * 6, [14.0] * 6, [13.0] * 6]
    assert heats[2]["data"][0]["z"] == [[0.2] * 6] * 3
    assert made.count('<table class="sortable">') == 2


def test_ranks_are_merged_and_their_differences_told():
    """The loss is the mean with the band between ranks; where scale and length differ is said."""
    summary = summarise(RANKS)
    loss = next(curve for curve in summary.curves if curve.name == "loss")

    assert loss.values[0] == pytest.approx(1.5)
    assert (loss.low[0], loss.high[0]) == pytest.approx((1.0, 2.0))
    scale, lengths = summary.differences
    assert scale == "The loss scale differs between ranks in 4 steps, first in 21 (rank 0: 65536.0, rank 1: 1.0)."
    assert lengths == "Ranks recorded different numbers of steps: rank 0: 30, rank 1: 25."
    assert summarise(run([step(0)], [step(0, 1)])).differences == ()


def test_a_long_run_is_thinned_and_keeps_its_events():
    """A hundred thousand steps of 80 modules: few points, few cells, and the one skip."""
    wide = {f"m{i}": ModuleRecord("fp16", 0.0, 1.0, 16.0 - (i == 70) * 15) for i in range(80)}
    steps = [
        StepRecord(
            i,
            loss=1.0,
            scale=1.0,
            modules=wide if i % 100 == 0 else {},
            reason="found_inf" if i == 54321 else "applied",
        )
        for i in range(100_000)
    ]
    summary = summarise(run(steps))

    assert all(len(curve.steps) <= POINTS for curve in summary.curves)
    assert [record.step for record in summary.skips] == [54321]
    (heat,) = summary.heats
    assert len(heat.steps) <= COLUMNS
    assert len(heat.rows) == ROWS
    assert "m70" in heat.rows


@pytest.fixture
def kept(tmp_path):
    """A run of which step 7 of 10 was kept, as a resumed one counts it (its third), and replayed; step 8 was not."""
    store = IncidentStore(tmp_path / "incidents")
    first = store.save(Moment("skipped", 2, losses=(math.nan,), time=107.5))
    store.save(Moment("underflow", 3, losses=(0.5,), time=108.5))
    op = OpRecord(
        "aten.mm.default",
        "forward",
        Location(file="train.py", line=21, module="wo"),
        inputs=(TensorStats("float16", (2,), 2, amax=300.0),),
        outputs=(TensorStats("float16", (2,), 2, infs=1, amax=1.0),),
        module_class="Linear",
    )
    keep_result(first, Replay(first.name, "skipped", 2, True, True, Outcome((), {}), Traced(Origin(first_inf=op), 1)))
    return Run(tmp_path, (RankRun(0, {}, tuple(step(i, time=101.0 + i) for i in range(10)), ended=True),))


def test_kept_steps_are_on_the_time_axis_and_in_a_table(kept):
    """Each at the step that the record gives it, with its folder, the command, and what a replay has found."""
    summary = summarise(kept)
    page = run_page(summary)
    reader = read(page)
    course = figures(page)[0]

    assert [(one.step, one.kind) for one in summary.kept] == [(7, "skipped"), (8, "underflow")]
    [marks] = [trace for trace in course["data"] if trace["name"] == "kept for replay"]
    assert (marks["x"], marks["yaxis"]) == ([7, 8], "y3")
    assert reader.links == ["incidents/step000002-skipped-rank0", "incidents/step000003-underflow-rank0"]
    assert reader.loads == []
    elsewhere = read(run_page(summary, kept.folder.parent / "pages" / "a.html")).links
    assert elsewhere[0] == f"../{kept.folder.name}/incidents/step000002-skipped-rank0"
    text = " ".join(reader.text)
    assert "2 steps kept for replay." in text
    assert "train.py:21, module wo (Linear): aten.mm.default made Inf of finite numbers in forward (float16)." in text
    assert f"mixprec replay {kept.folder}/incidents/step000003-underflow-rank0" in text


def test_a_run_without_kept_steps_says_nothing_of_them():
    """Neither a mark nor a table; the sentence at the top is without them."""
    page = run_page(summarise(USUAL))

    assert "kept for replay" not in page


def test_a_folder_that_holds_something_else_is_passed_over(kept):
    """An incident of which a line is lost, or of another version, breaks no page."""
    (kept.folder / "incidents" / "step000002-skipped-rank0" / "incident.json").write_text("{")
    (kept.folder / "incidents" / "step000003-underflow-rank0" / "replay.json").write_text("[")

    [left] = summarise(kept).kept
    assert (left.step, left.replayed) == (8, "")
