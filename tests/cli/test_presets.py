"""`mixprec presets` shows the rows of `mixprec.presets`, and nothing of its own."""

from __future__ import annotations

from mixprec.presets import all_presets


def test_json_is_the_rows(mixprec):
    """Names, sources and rules of the document are those of the presets, in order."""
    answer = mixprec("presets", "--format", "json").json

    assert answer["schema"] == 1
    assert [row["name"] for row in answer["presets"]] == [preset.name for preset in all_presets()]
    for row, preset in zip(answer["presets"], all_presets(), strict=True):
        assert row["rules"]["growth_interval"] == preset.rules.growth_interval
        assert row["sources"] == list(preset.sources)


def test_text_has_one_line_per_preset(mixprec):
    """No name is wrapped: each preset is the start of one line."""
    starts = [line.split(" ")[0] for line in mixprec("presets").out.splitlines()]

    assert [start for start in starts if start in {p.name for p in all_presets()}] == [p.name for p in all_presets()]


def test_one_preset_shows_all_its_fields_and_sources(mixprec):
    """`mixprec presets torch` prints each rule and each link unbroken."""
    (torch_row,) = [preset for preset in all_presets() if preset.name == "torch"]
    answer = mixprec("presets", "torch").out

    assert "growth_interval  2000" in answer
    for source in torch_row.sources:
        assert source in answer.split()


def test_an_unknown_preset_is_answered_with_the_closest(mixprec):
    """A mistyped preset ends with exit code 2 and the right name."""
    answer = mixprec("presets", "tensorflow-torch")
    near = mixprec("presets", "toch")

    assert answer.code == near.code == 2
    assert "'torch'" in near.err
