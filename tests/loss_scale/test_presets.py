"""Every system has one row, found by its name, with a source and a note."""

from __future__ import annotations

import pytest

from mixprec import presets
from mixprec._loss_scale import Rules, advance, initial
from mixprec.errors import UnknownNameError

ALL = presets.all_presets()


def test_rows_are_the_public_ones() -> None:
    """`all_presets` holds each public row once, mixprec's own first."""
    public = {getattr(presets, name) for name in presets.__all__ if isinstance(getattr(presets, name), presets.Preset)}
    assert set(ALL) == public
    assert len(ALL) == len(public) == len({preset.name for preset in ALL})
    assert ALL[0] is presets.MIXPREC


@pytest.mark.parametrize("preset", ALL, ids=lambda preset: preset.name)
def test_row_has_a_source_and_a_note(preset: presets.Preset) -> None:
    """A row says where it was read and what to know about it."""
    assert preset.sources
    assert all(source.startswith("https://") for source in preset.sources)
    assert preset.note.endswith(".")


@pytest.mark.parametrize("preset", ALL, ids=lambda preset: preset.name)
def test_row_is_found_by_its_name_in_any_spelling(preset: presets.Preset) -> None:
    """Case does not matter, nor `_` for `-`; the constant's own name works."""
    for name in (preset.name, preset.name.upper(), preset.name.replace("-", "_")):
        assert presets.get(name) is preset


def test_unknown_row_gets_suggestions() -> None:
    """A slip of the pen is answered with what was probably meant."""
    with pytest.raises(UnknownNameError) as caught:
        presets.get("megatorn")
    assert caught.value.suggestions == ("megatron",)


def test_mixprecs_row_is_the_default_rules() -> None:
    """What `Rules()` builds is the row that is called mixprec."""
    assert presets.MIXPREC.rules == Rules()


def test_flax_row_grows_one_clean_step_later_than_its_number_says() -> None:
    """Flax's default interval is 2000, and its scale doubles at the 2001st clean step."""
    state = initial(presets.FLAX.rules)
    scales = []
    for _ in range(2001):
        state, _ = advance(presets.FLAX.rules, state, False)
        scales.append(state.scale)
    assert scales[-2:] == [2.0**16, 2.0**17]
