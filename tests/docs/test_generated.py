"""Pictures, lists and tables of the manual are what the code gives now."""

from __future__ import annotations

import importlib
import inspect
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def script(monkeypatch):
    """`script("generate_pictures")`: a module of docs/."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in DOCS.glob("generate_*.py") if path.stem != "generate_rules")
)
def test_what_is_generated_is_up_to_date(script, name):
    """Each generator would write what is there; run it when this fails."""
    assert script("generated").stale(script(name).outputs) == []


def test_every_picture_is_well_formed_named_and_shown(script):
    """A picture parses as XML, says what it shows, and stands on a page; no picture is left over."""
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    names = set(script("generate_pictures").PICTURES)

    for name in names:
        root = ET.parse(DOCS / "pictures" / f"{name}.svg").getroot()
        assert root.get("aria-label")
        assert f"pictures/{name}.svg)" in pages, name
    assert names <= {path.stem for path in (DOCS / "pictures").glob("*.svg")}


def test_the_loss_scale_of_the_picture_is_that_of_the_specification(script):
    """The run that is drawn overflows exactly where scale times gradient does, and moves as `advance` moves it."""
    pictures = script("generate_pictures")
    run = pictures.loss_scale_run(pictures.FEEDBACK, "gan-judge", 300)

    overflowed = [scale >= limit for scale, limit in zip(run.scales, run.limits, strict=True)]
    backed_off = [event is pictures.Event.BACK_OFF for event in run.events]
    assert overflowed == backed_off
    assert any(overflowed)
    for before, after, event in zip(run.scales, run.scales[1:], run.events, strict=False):
        assert after - before == {"back_off": -1, "grow": 1, "hold": 0}[event.value]


def test_a_stale_file_would_be_named(script, tmp_path):
    """The check can fail: a changed and a missing file are stale until they are written."""
    generated = script("generated")
    changed, missing = tmp_path / "a", tmp_path / "b" / "c"
    changed.write_text("old")

    def outputs():
        return {changed: "new", missing: "new"}

    assert generated.stale(outputs) == [changed, missing]
    assert generated.run(outputs, ["--check"]) == 1
    assert generated.run(outputs, []) == 0
    assert generated.run(outputs, ["--check"]) == 0


def test_only_what_is_between_the_marks_is_replaced(script):
    """`between` leaves the rest alone, and refuses a page without the pair of marks."""
    between = script("generated").between

    assert between("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb", "x", "new") == (
        "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb"
    )
    with pytest.raises(ValueError, match="no pair of marks"):
        between("a <!-- x: begin -->", "x", "new")


def test_the_lists_of_autocast_are_those_of_the_policies(script):
    """The page names every op of PyTorch's CUDA and CPU lists."""
    page = (DOCS / "how-it-works" / "autocast.md").read_text(encoding="utf-8")
    policy = script("generate_lists").Policy

    shown = set(re.findall(r"`([\w.]+)`", page))
    assert set(policy.torch("cuda").ops) | set(policy.torch("cpu").ops) <= shown


def test_the_reference_names_everything_public(script):
    """Every public name of every documented module has an entry and a line in the index; `mixprec` is one of them."""
    reference = script("reference_pages")
    index = reference.index()

    assert "mixprec" in reference.documented()
    for dotted, module in reference.documented().items():
        page = reference.part(dotted)
        for name in reference.names(module):
            assert f"\n## {name}\n" in page
            assert f"[`{name}`](" in index


def test_a_signature_is_written_as_it_is_called(script):
    """Powers of two stay readable, enumerations have their names, and what needs its name stands behind a star."""
    reference = script("reference_pages")

    def scaled(loss: float, scale: float = 65536.0, *, name: str | None = None) -> None:
        """Words."""

    assert reference.signature("scaled", scaled)[1] == (
        "scaled(loss: float, scale: float = 2.0**16, *, name: str | None = None)"
    )


def test_everything_that_the_reference_lists_is_documented(script):
    """Each public class and function of each documented module, and each public method, has words of its own."""
    reference = script("reference_pages")

    bare = []
    for dotted, module in reference.documented().items():
        for name in reference.names(module):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                members = [] if not inspect.isclass(value) else vars(value).items()
                own = [(f"{name}.{key}", member) for key, member in members if key[0] != "_" and is_code(member)]
                bare += [f"{dotted}.{where}" for where, each in [(name, value), *own] if not documented(each)]
    assert bare == []


def is_code(member):
    """Whether a class attribute is a method or a property."""
    return inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod, property))


def documented(value):
    """Whether somebody wrote words for this; those that dataclasses make up do not count."""
    words = inspect.getdoc(getattr(value, "__func__", value)) or ""
    return bool(words) and not words.startswith(f"{getattr(value, '__name__', '?')}(")
