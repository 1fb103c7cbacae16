"""The catalogue is complete, consistent and written in whole sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mixprec.causes
from mixprec.causes import Cause, Where, all_causes, find_cause
from mixprec.errors import UnknownNameError

FOLDER = Path(mixprec.causes.__file__).parent
CAUSES = all_causes()
OWN = "MP290"
"""From this code to MP299 a cause is about mixprec's own comments and settings."""
TEXTS = ("title", "symptom", "evidence", "fix")


def test_codes_and_names_are_unique_and_in_order() -> None:
    """A code names one cause, a name names one cause, and the catalogue is sorted by code."""
    codes = [cause.code for cause in CAUSES]
    assert codes == sorted(set(codes))
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)


def test_every_file_holds_the_cause_that_its_name_says() -> None:
    """`mpNNN_words.py` holds the cause with code `MPNNN` and name `words`."""
    expected = {f"{cause.code.lower()}_{cause.name.replace('-', '_')}.py" for cause in CAUSES}
    assert {path.name for path in FOLDER.glob("mp*.py")} == expected


FAMILIES = [
    *[(1, 29), (30, 40), (41, 53), (60, 72), (80, 98), (100, 111)],
    *[(120, 126), (130, 147), (160, 174), (200, 211), (213, 214)],
]


@pytest.mark.parametrize(("first", "last"), FAMILIES)
def test_families_have_no_gaps(first: int, last: int) -> None:
    """Every number of a family has a cause."""
    codes = {cause.code for cause in CAUSES}
    assert {f"MP{number:03d}" for number in range(first, last + 1)} <= codes


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_a_cause_is_well_formed(cause: Cause) -> None:
    """Code, name, texts, places, sources and relations of a cause have the form that the surfaces rely on."""
    assert re.fullmatch(r"MP\d{3}", cause.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause.name)
    for field in TEXTS:
        text = getattr(cause, field)
        assert re.search(r"\.[\")]?$", text), field
        assert text == " ".join(text.split()), field
        assert text[0].isupper() or text.split()[0].rstrip("()").islower(), field
    assert len(cause.title) <= 160
    assert cause.where
    assert list(cause.where) == [where for where in Where if where in cause.where]
    assert cause.raises in {"silent", "warns", "raises"}
    assert cause.sources or cause.code >= OWN, "only what is about mixprec itself needs no source"
    assert all(re.fullmatch(r"https://\S+", source) for source in cause.sources)
    assert len(set(cause.sources)) == len(cause.sources)


def test_related_causes_exist_and_are_others() -> None:
    """`related` names other causes that exist, each once."""
    codes = {cause.code for cause in CAUSES}
    for cause in CAUSES:
        assert set(cause.related) <= codes - {cause.code}, cause.code
        assert len(set(cause.related)) == len(cause.related), cause.code


@pytest.mark.parametrize("spelling", ["MP002", "mp2", "R02", "r2", " MP2 ", "clip-before-unscale"])
def test_a_cause_is_found_by_code_number_and_name(spelling: str) -> None:
    """A cause is found by its code, by its number in short, and by its name."""
    assert find_cause(spelling).code == "MP002"


def test_an_unknown_cause_is_refused_with_the_closest_names() -> None:
    """A name that is nearly right gets the right one suggested."""
    with pytest.raises(UnknownNameError, match="clip-before-unscale"):
        find_cause("clip-before-unscaling")
