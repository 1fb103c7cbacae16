"""A selector matches exactly the modules that it names, and says how closely."""

from __future__ import annotations

import fnmatch
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._policy.selector import (
    Kind,
    Place,
    class_names,
    class_selector,
    path_selector,
    selector,
)
from mixprec.errors import InvalidValueError

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)
NAMES = st.sampled_from(["a", "b", "ab", "layers", "3", "31"])
SEGMENTS = st.sampled_from(["a", "b", "ab", "layers", "3", "*", "?", "a*", "[0-9]", "**"])


def _regex(pattern):
    """The glob as one regular expression over paths, written independently of the matcher."""
    parts = []
    for segment in pattern.split("."):
        parts.append(
            r"(?:[^.]+\.)*" if segment == "**" else fnmatch.translate(segment)[4:-3].replace(".", "[^.]") + r"\."
        )
    return re.compile("".join(parts))


@SETTINGS
@given(
    st.lists(SEGMENTS, min_size=1, max_size=4).filter(lambda s: s[-1] != "**"), st.lists(NAMES, min_size=1, max_size=5)
)
def test_a_path_glob_matches_what_its_regular_expression_matches(segments, names):
    """`*` and `?` stay inside a segment, `**` spans any number of them."""
    pattern, path = ".".join(segments), ".".join(names)
    expected = _regex(pattern).fullmatch(path + ".") is not None
    assert (path_selector(pattern).closeness(Place(path)) is not None) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("encoder", "encoder", True),
        ("encoder", "encoder.0", False),
        ("encoder.*", "encoder.0", True),
        ("encoder.*", "encoder", False),
        ("encoder.*", "encoder.0.attn", False),
        ("encoder.**.norm", "encoder.norm", True),
        ("encoder.**.norm", "encoder.layers.3.norm", True),
        ("encoder.**.norm", "decoder.norm", False),
        ("**.norm", "norm", True),
        ("layers.[0-3]", "layers.3", True),
        ("layers.[0-3]", "layers.4", False),
        ("layers.?", "layers.12", False),
        ("**", "", True),
        ("**", "encoder", False),
        ("encoder", "", False),
        ("Encoder", "encoder", False),
    ],
)
def test_a_path_glob_by_example(pattern, path, matches):
    """A glob names modules, not what is inside them; containment is the resolver's."""
    assert (path_selector(pattern).closeness(Place(path)) is not None) is matches


def test_a_trailing_double_star_adds_nothing():
    """A rule holds inside the module it names, so `encoder.**` is `encoder`."""
    assert path_selector("encoder.**") == path_selector("encoder")
    assert path_selector("encoder.**.**") == path_selector("encoder")
    assert path_selector("**.**") == path_selector("**")


@pytest.mark.parametrize(
    ("closer", "farther"),
    [
        ("encoder.layers.3", "encoder.layers.*"),
        ("encoder.layers.*", "encoder.*.*"),
        ("encoder.*.3", "**.3"),
        ("encoder.layer?.3", "encoder.*.3"),
        ("encoder.layers.*", "class torch.nn.Linear"),
        ("**.3", "class torch.nn.Linear"),
        ("class torch.nn.Linear", "class torch.nn.Module"),
        ("class torch.nn.Linear", "class Linear"),
    ],
)
def test_closeness(closer, farther):
    """A path is closer than a class, a more literal path than a glob, a nearer base than a farther one."""
    place = Place("encoder.layers.3", class_names(torch.nn.Linear))
    first, second = selector(closer).closeness(place), selector(farther).closeness(place)
    if "layer?" in closer:
        place = Place("encoder.layerA.3")
        first, second = selector(closer).closeness(place), selector(farther).closeness(place)
    assert first is not None
    assert second is not None
    assert first >= second
    assert (first > second) is ("layer?" not in closer)


class Local(torch.nn.LayerNorm):
    pass


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("LayerNorm", True),
        ("torch.nn.LayerNorm", True),
        ("torch.nn.modules.normalization.LayerNorm", True),
        ("torch.LayerNorm", True),
        ("torch.nn.Module", True),
        ("Local", True),
        ("other.nn.LayerNorm", False),
        ("torch.n.LayerNorm", False),
        ("Norm", False),
        ("RMSNorm", False),
    ],
)
def test_a_class_name_matches_by_isinstance_and_public_path(name, matches):
    """A bare name, the public name and the defining name all find the class and its subclasses."""
    assert (class_selector(name).closeness(Place("x", class_names(Local))) is not None) is matches


def test_a_class_and_its_defining_name_are_one_selector():
    """A `type` is stored by name, so a policy holds no objects."""
    assert selector(torch.nn.LayerNorm) == class_selector("torch.nn.modules.normalization.LayerNorm")


@pytest.mark.parametrize(
    ("text", "kind", "pattern"),
    [
        ("LayerNorm", Kind.CLASS, "LayerNorm"),
        ("torch.nn.LayerNorm", Kind.CLASS, "torch.nn.LayerNorm"),
        ("GPT2Block", Kind.CLASS, "GPT2Block"),
        ("encoder.layers.3", Kind.PATH, "encoder.layers.3"),
        ("Mixed_5b", Kind.PATH, "Mixed_5b"),
        ("encoder.ReLU*", Kind.PATH, "encoder.ReLU*"),
        ("QK", Kind.PATH, "QK"),
        ("path Encoder", Kind.PATH, "Encoder"),
        ("class my_norm", Kind.CLASS, "my_norm"),
    ],
)
def test_a_string_is_read_as_it_is_written(text, kind, pattern):
    """What is written like a class is a class; a prefix says it outright."""
    assert (selector(text).kind, selector(text).pattern) == (kind, pattern)


@pytest.mark.parametrize(
    ("refused", "accepted", "says"),
    [
        ("", "**", "module path is ''; accepted is a name that is not empty"),
        ("encoder..3", "encoder.3", "names joined by single dots"),
        (".encoder", "encoder", "names joined by single dots"),
        ("encoder.", "encoder", r"The root is '\*\*'"),
        ("my module", "my?module", r"has no space, ':' or '#'. In a path, '\?' stands for any one"),
        ("a:b", "a?b", "has no space, ':' or '#'"),
        ("class Layer*", "class LayerNorm", "a class name without wildcards. Globs are for module paths"),
        (3, "3", "module is 3; accepted is a path glob, a class, or a class name"),
    ],
)
def test_a_refused_selector_beside_an_accepted_one(refused, accepted, says):
    """What can match nothing, or could not be written down, is refused with what to write instead."""
    with pytest.raises(InvalidValueError, match=says):
        selector(refused)
    assert selector(accepted)
