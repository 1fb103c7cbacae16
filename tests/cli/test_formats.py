"""`mixprec formats` shows what the format rows derive."""

from __future__ import annotations

import pytest

from mixprec.formats import FORMATS, FP16


def test_json_holds_every_format_and_every_derived_number(mixprec):
    """The document lists all rows in order, each number equal to the row's property."""
    answer = mixprec("formats", "--format", "json").json

    assert answer["schema"] == 1
    assert [row["name"] for row in answer["formats"]] == list(FORMATS)
    fp16 = next(row for row in answer["formats"] if row["name"] == "fp16")
    assert {name: fp16[name] for name in ("max", "tiny", "smallest_subnormal", "eps")} == {
        "max": FP16.max,
        "tiny": FP16.tiny,
        "smallest_subnormal": FP16.smallest_subnormal,
        "eps": FP16.eps,
    }


@pytest.mark.parametrize(
    ("number", "name", "fate"),
    [
        ("1.5", "fp16", "exact"),
        ("0.1", "fp16", "rounded"),
        ("2.5e-5", "fp16", "subnormal"),
        ("-1e-9", "fp16", "flushed to zero"),
        ("65519", "fp16", "rounded"),
        ("65520", "fp16", "overflows"),
        ("65520", "fp8_e4m3", "saturates"),
        ("1e-9", "bf16", "rounded"),
        ("inf", "fp16", "not finite"),
    ],
)
def test_a_number_meets_its_fate(mixprec, number, name, fate):
    """Each kind of fate beside its nearest neighbour: 65519 still rounds to a number in fp16, 65520 does not."""
    (document,) = mixprec("formats", "--format", "json", number).json["numbers"]
    (found,) = [row for row in document["in"] if row["format"] == name]

    assert found["fate"] == fate


def test_text_names_every_format(mixprec):
    """Without arguments the table has one line per format."""
    lines = mixprec("formats").out.splitlines()

    assert [line.split()[0] for line in lines[-len(FORMATS) :]] == list(FORMATS)


def test_what_is_no_number_is_refused(mixprec):
    """`mixprec formats half` is a usage error: exit code 2, and the word is named."""
    answer = mixprec("formats", "half")

    assert answer.code == 2
    assert "'half' is not a valid float" in answer.err
