"""`mixprec device` shows this machine and the accelerators that it need not have."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from mixprec._hardware import ACCELERATORS, Traits, accelerator_of
from mixprec.cli import main


def run(*arguments):
    return CliRunner().invoke(main, ["device", *arguments])


def test_this_machine_is_shown_with_the_mode_that_would_be_picked():
    """There is always a CPU."""
    document = json.loads(run("--format", "json").stdout)

    assert document["devices"][0]["kind"] == "cpu"
    assert document["devices"][0]["recommended"]["mode"] in ("bf16-mixed", "fp32")
    assert "mixprec would pick" in run().stdout


def test_every_row_has_a_source_and_says_whether_it_was_checked():
    """Rates are positive, sources are links, and what was not verified is marked in the table."""
    table = run("--all").stdout

    assert all(row.source.startswith("https://") and row.fp32 > 0 and row.bandwidth > 0 for row in ACCELERATORS)
    assert table.count("not verified") == sum(not row.verified for row in ACCELERATORS)


def test_a_device_is_known_by_the_name_that_its_driver_reports():
    """The longest fitting name decides; another kind of device never fits."""
    assert accelerator_of(Traits("cuda", "NVIDIA GeForce RTX 3090 Ti")).name == "RTX 3090 Ti"
    assert accelerator_of(Traits("cuda", "NVIDIA A100-SXM4-80GB")).name == "A100"
    assert accelerator_of(Traits("cuda", "NVIDIA H200")).name == "H200"
    assert accelerator_of(Traits("cpu", "H200")) is None


def test_emulation_is_said():
    """A T4 has no unit for bfloat16; an H100 has."""
    assert "no unit for it" in run("T4").stdout
    assert "bf16-mixed" in run("H100").stdout


def test_an_unknown_name_is_refused_with_suggestions():
    """The nearest accepted neighbour is above."""
    result = run("H10")

    assert result.exit_code == 2
    assert "H100" in result.output


def test_the_manual_has_the_same_table():
    """One line per accelerator in docs/hardware.md, with its numbers, its source and whether they were checked."""
    page = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")

    for row in ACCELERATORS:
        rates = " | ".join("–" if rate is None else f"{rate:g}" for rate in (row.fp16, row.bf16, row.tf32, row.fp32))
        checked = "data sheet" if row.verified else "not verified"
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row.maker} {row.name} |")]
        assert f"| {rates} | {row.bandwidth:g} |" in line
        assert f"[{checked}]({row.source})" in line
