"""Text, JSON and page say what the report holds."""

from __future__ import annotations

import io
import json

import pytest
import torch
from torch import nn

import mixprec
from mixprec.audit import audit
from mixprec.report import text
from mixprec.report.audit_json import audit_document
from mixprec.report.audit_text import amount, duration, print_audit
from mixprec.report.html import audit_page


@pytest.fixture(scope="module")
def report():
    model = nn.Sequential(nn.Linear(128, 301), nn.GELU(), nn.Linear(301, 128))
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(64, 128)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return audit(model, step, timed=2)


def test_the_document_begins_with_findings_as_every_command_writes_them(report):
    """`schema`, `findings`, `summary`, then the numbers; bounds come with the speed-up that follows from them."""
    document = json.loads(audit_document(report))

    assert list(document)[:3] == ["schema", "findings", "summary"]
    assert document["summary"]["by_code"]["MP101"] == 1
    assert document["memory"]["peak"] == report.memory.peak
    assert document["bound"]["speedup"] == report.bound.speedup
    assert document["forecasts"][0]["precision"] == "fp32"


def test_text_fits_eighty_columns_but_for_findings(report):
    """Findings stay on one line each for grep; every table fits."""
    out = io.StringIO()
    print_audit(text.console(out), report, lambda location: None)
    page = out.getvalue()
    tables = page[page.index("Memory by cause") :]

    assert "MP101" in page
    assert "301 → 304" in tables
    assert max(map(len, tables.splitlines())) <= 80


def test_the_page_is_complete(report):
    """One file, no address that it loads from, every finding and every row of the forecast in it."""
    page = audit_page(report)

    assert "MP101" in page
    assert all(row.precision in page for row in report.forecasts)
    assert "src=" not in page
    assert "<link" not in page


def test_a_step_that_runs_nothing_is_refused():
    """The error says what to pass instead; the nearest accepted neighbour is above."""
    with pytest.raises(mixprec.errors.MisuseError, match="ran no op"):
        audit(nn.Linear(2, 2), lambda: None)


def test_the_package_can_be_called(report):
    """`mixprec.audit(model, step)` is `mixprec.audit.audit(model, step)`."""
    model = nn.Linear(8, 8)

    called = mixprec.audit(model, lambda: model(torch.randn(2, 8)), timed=0)

    assert isinstance(called, mixprec.audit.AuditReport)
    assert called.products.flops == 2 * 2 * 8 * 8


@pytest.mark.parametrize(
    ("size", "said"), [(12, "12 B"), (2048, "2.0 KiB"), (3 * 2**20, "3.0 MiB"), (2**40, "1024.0 GiB")]
)
def test_amounts_are_said_in_the_unit_that_fits(size, said):
    """Bytes to GiB."""
    assert amount(size) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(2.5, "2.5 s"), (0.0025, "2.5 ms"), (2.5e-6, "2.5 µs"), (2.5e-9, "2.5 ns")]
)
def test_times_are_said_in_the_unit_that_fits(seconds, said):
    """Seconds to nanoseconds."""
    assert duration(seconds) == said
