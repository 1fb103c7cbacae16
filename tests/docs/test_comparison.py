"""docs/comparison.md: its table of loss scales says what the presets say, and every system has a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mixprec import presets

PAGE = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text(encoding="utf-8")
ROWS = {
    "mixprec": "mixprec",
    "torch.amp": "torch",
    "Apex": "apex",
    "DeepSpeed": "deepspeed-zero",
    "Megatron": "megatron",
    "Paddle": "paddle",
    "Keras 3": "keras",
    "flax": "flax",
}
"""How the page calls each preset."""


def row(system):
    """Cells of the first table's row of a system, links reduced to their words."""
    table = PAGE.partition("## Loss scale")[2].partition("## ")[0]
    plain = re.sub(r"\[([^\]]+)\]\[[^\]]+\]", r"\1", table)
    return [cell.strip() for cell in re.search(rf"^\| {re.escape(system)}[ (|].*$", plain, re.MULTILINE)[0].split("|")]


def power(text):
    """The number that `2¹⁶` stands for."""
    return 2.0 ** int(text[1:].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")))


@pytest.mark.parametrize(("system", "preset"), ROWS.items())
def test_a_row_says_what_the_preset_says(system, preset):
    """Start, interval and tolerance of a row are those of the preset; a bound of 1 is named where there is one."""
    cells, rules = row(system), presets.get(preset).rules

    assert power(cells[2]) == rules.init_scale
    assert int(re.search(r"\d{4}", cells[3])[0]) == rules.growth_interval
    assert rules.backoff_factor == 0.5
    assert (cells[5] == "1") == (rules.hysteresis == 2)
    assert ("1" in re.findall(r"\d+(?:\.\d+e-\d+)?", cells[6])) == (rules.min_scale == 1.0)


def test_every_link_by_name_has_its_source():
    """Each `[text][name]` is defined at the end, with a version or commit where it leads to a repository."""
    used = set(re.findall(r"\]\[([\w-]+)\]", PAGE))
    defined = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", PAGE, re.MULTILINE))

    assert used == set(defined)
    for link in defined.values():
        assert "/blob/main/" not in link
        assert "/blob/master/" not in link
