"""`mixprec explain` serves the catalogue of causes that lint, doctor, monitor and audit share."""

from __future__ import annotations

import pytest

from mixprec.causes import all_causes


@pytest.mark.parametrize("name", ["MP002", "mp2", "R02", "clip-before-unscale"])
def test_a_cause_answers_to_code_and_name(mixprec, name):
    """Code in any case, without zeros, by its R number or by name: the same cause."""
    answer = mixprec("explain", name, "--format", "json").json

    assert (answer["kind"], answer["cause"]["code"]) == ("cause", "MP002")


@pytest.mark.parametrize("cause", all_causes(), ids=lambda cause: cause.code)
def test_every_cause_can_be_shown(mixprec, cause):
    """Each cause prints its title, its fix and its sources, links unbroken, within 80 columns."""
    out = mixprec("explain", cause.code).out
    words = " ".join(out.split())

    assert out.startswith(f"{cause.code} {cause.name}\n")
    assert " ".join(cause.title.split()) in words
    for source in cause.sources:
        assert source in out.split()
    assert [line for line in out.splitlines() if len(line) > 80 and "https://" not in line] == []


def test_without_argument_all_causes_are_listed(mixprec):
    """The list has every code, in text and in JSON."""
    codes = [cause.code for cause in all_causes()]

    assert [row["code"] for row in mixprec("explain", "--format", "json").json["causes"]] == codes
    assert [line.split()[0] for line in mixprec("explain").out.splitlines() if line.startswith("MP")] == codes


@pytest.mark.parametrize(("typed", "meant"), [("clip-befor-unscale", "clip-before-unscale"), ("sofmax", "softmax")])
def test_what_is_neither_op_nor_cause_is_answered_with_the_closest_of_both(mixprec, typed, meant):
    """A mistyped cause leads to the cause, a mistyped op to the op."""
    answer = mixprec("explain", typed)

    assert answer.code == 2
    assert f"'{meant}'" in answer.err
