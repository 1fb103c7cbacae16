"""The search finds modules that are enough, of which none can be left out, and asks few questions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.doctor._island import outward, smallest

TREE = {
    "": ("embed", "layers.0", "layers.1", "layers.2", "head"),
    **{f"layers.{n}": (f"layers.{n}.wi", f"layers.{n}.act", f"layers.{n}.wo") for n in range(3)},
}


def covered(some):
    """Everything inside of some modules, themselves included."""
    return set(some) | {part for path in some for part in covered(TREE.get(path, ()))}


def asking(*needed):
    """(passes, questions): a step that is healthy where all of `needed` are in float32."""
    questions = []

    def passes(some):
        questions.append(some)
        return set(needed) <= covered(some)

    return passes, questions


def test_one_leaf_is_one_question():
    """Where the module at fault is enough, nothing else is asked."""
    passes, questions = asking("layers.1.wo")

    assert smallest(TREE, "layers.1.wo", passes) == ("layers.1.wo",)
    assert questions == [("layers.1.wo",)]


def test_two_of_one_block():
    """A layer and its successor: the search goes out to the block and comes in again."""
    passes, _ = asking("layers.1.wi", "layers.1.wo")

    assert smallest(TREE, "layers.1.wi", passes) == ("layers.1.wi", "layers.1.wo")


def test_two_of_different_blocks():
    """It goes out to the model and comes in at two places."""
    passes, _ = asking("layers.0.wi", "layers.2.wo")

    assert set(smallest(TREE, "layers.0.wi", passes)) == {"layers.0.wi", "layers.2.wo"}


def test_what_a_block_does_between_its_parts_needs_the_block():
    """Parts alone are not enough: the block itself is the island."""
    passes, _ = asking("layers.2")

    assert smallest(TREE, "layers.2.act", passes) == ("layers.2",)


def test_the_model_itself_and_nothing():
    """The outermost alone is its own code; where not even that helps there is no island."""
    assert smallest(TREE, "head", asking("")[0]) == ("",)
    assert smallest(TREE, "head", lambda some: False) is None


def test_outward_ends():
    """Also where a module was called in itself."""
    assert outward(TREE, "layers.1.act") == ["layers.1.act", "layers.1", ""]
    assert outward({"a": ("b",), "b": ("a",)}, "a") == ["a", "b"]


LEAVES = sorted(set(covered(("",))) - set(TREE))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sets(st.sampled_from(LEAVES), min_size=1, max_size=3), st.sampled_from(LEAVES))
def test_nothing_can_be_left_out(needed, near):
    """Whatever is needed, exactly that is found, from wherever the search begins."""
    assert set(smallest(TREE, near, asking(*needed)[0])) == needed


@pytest.mark.parametrize("count", [64, 257])
@pytest.mark.parametrize("needed", [(7,), (3, 60), (1, 30, 50)])
def test_few_questions(count, needed):
    """Each of many layers that is needed costs about the logarithm of their number."""
    wanted = {f"net.{n}" for n in needed}
    tree = {"": ("net",), "net": tuple(f"net.{n}" for n in range(count))}
    asked = []

    def passes(some):
        asked.append(some)
        return bool(set(some) & {"", "net"}) or wanted <= set(some)

    assert set(smallest(tree, "net.0", passes)) == wanted
    assert len(asked) <= 3 + len(needed) * (math.ceil(math.log2(count)) + 1)
