"""Where one step ends and the next begins, from marks alone."""

from __future__ import annotations

import pytest

from mixprec.audit._log import Mark
from mixprec.audit._steps import cut


def marks(text):
    """`F` a model is called, `B` a backward pass is over, a digit the optimizer of that number stepped."""
    names = {"F": "forward", "B": "backward"}
    return [Mark(names.get(letter, "step"), dtype="" if letter in names else letter) for letter in text]


def lengths(text):
    return [len(step.events) for step in cut(marks(text), {})]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FB0FB0FB0", [3, 3, 3]),  # plain
        ("FBFBFB0FBFBFB0", [7, 7]),  # accumulation
        ("FFB0FB1FFB0FB1", [7, 7]),  # a GAN: discriminator, then generator
        ("FB0FB1FB0", [6]),  # the second cycle is not complete
        ("FBFBFB", [2, 2, 2]),  # no optimizer: each backward pass
        ("FFBFFB", [3, 3]),  # two models per backward pass
        ("FFF", [1, 1, 1]),  # neither: each call
        ("", []),
    ],
)
def test_a_step_is_a_cycle_of_the_optimizers_else_a_backward_pass_else_a_call(text, expected):
    """The marks in each step, for every way to train."""
    assert lengths(text) == expected
