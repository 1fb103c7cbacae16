"""The closest rule decides, and what "closest" means is exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._policy import CastRule, Decision, Level, Place, Policy, module_rule, resolve, resolve_at

LOW, FP32, KEEP, BANNED = CastRule.LOW, CastRule.FP32, CastRule.KEEP, CastRule.BANNED
BASE = Policy.torch("cuda", version="2.13")


@pytest.mark.parametrize(
    ("lines", "rule", "level"),
    [
        ([], "fp32_out", Level.BASE),
        (["op softmax: keep"], "keep", Level.OP),
        (["op softmax: keep", "module encoder: fp32"], "fp32", Level.MODULE),
        (["module encoder: fp32", "op softmax: keep"], "fp32", Level.MODULE),
        (["op softmax in encoder: low", "module encoder.layers.3: fp32"], "low", Level.OP_IN_MODULE),
        (["op exp in encoder: low"], "fp32_out", Level.BASE),
        (["module decoder: fp32"], "fp32_out", Level.BASE),
        (["module encoder: fp32", "module encoder.layers.3: low"], "low", Level.MODULE),
        (["module encoder.layers.3: low", "module encoder: fp32"], "low", Level.MODULE),
        (["module encoder.layers.3: low", "module encoder.layers.*: fp32"], "low", Level.MODULE),
        (["class Softmax: low", "module encoder.layers.3: fp32"], "low", Level.MODULE),
        (["class Softmax: low", "module **: fp32"], "low", Level.MODULE),
        (["class Softmax: low", "module encoder.layers.3.soft: fp32"], "fp32", Level.MODULE),
        (["class Softmax: low", "module **.soft: fp32"], "fp32", Level.MODULE),
        (["class Module: fp32", "class Softmax: low"], "low", Level.MODULE),
        (["class Softmax: low", "class Module: fp32"], "low", Level.MODULE),
        (["module encoder.layers.?.soft: low", "module encoder.layers.*.soft: fp32"], "fp32", Level.MODULE),
        (["module encoder.layers.*.soft: fp32", "module encoder.layers.?.soft: low"], "low", Level.MODULE),
    ],
)
def test_the_closest_rule_wins(lines, rule, level):
    """Kind before depth, depth before literalness, literalness before order."""
    policy = Policy.parse("\n".join(["base torch cuda 2.13", *lines]))
    decision = resolve(policy, "softmax", "encoder.layers.3.soft", torch.nn.Softmax)
    assert (decision.rule.value, decision.level) == (rule, level)


def test_outside_any_module_only_op_rules_and_the_base_count():
    """`**` is everything inside the model; a loss computed by hand is outside it."""
    policy = BASE.with_module("**", FP32)
    assert resolve(policy, "linear").rule is LOW
    assert resolve(policy, "linear", "").rule is FP32
    assert resolve(policy, "linear", "head").rule is FP32


def test_classes_of_enclosing_modules_count_where_they_are_known():
    """A class rule holds inside the module too, if the caller says what encloses the op."""
    policy = BASE.with_module("TransformerEncoderLayer", FP32)
    inner = Place("layers.0.linear1", ("torch.nn.modules.linear.Linear",))
    outer = Place("layers.0", ("torch.nn.modules.transformer.TransformerEncoderLayer",))
    assert resolve_at(policy, "linear", (outer, inner)).rule is FP32
    assert resolve_at(policy, "linear", (inner,)).rule is LOW


def test_a_module_list_that_is_never_called_still_encloses():
    """Only called modules are on the way, but a rule for a container between them holds."""
    policy = BASE.with_module("encoder.layers", FP32)
    assert resolve_at(policy, "linear", (Place(""), Place("encoder"), Place("encoder.layers.3"))).rule is FP32
    assert resolve_at(policy, "linear", (Place(""), Place("encoder"))).rule is LOW


def test_a_module_called_from_elsewhere_is_inside_both():
    """A shared embedding that the decoder calls is inside the decoder and inside its own parents, which are nearer."""
    way = (Place("decoder"), Place("encoder.embed"))
    assert resolve_at(BASE.with_module("decoder", FP32), "linear", way).rule is FP32
    assert resolve_at(BASE.with_module("decoder", FP32).with_module("encoder", KEEP), "linear", way).rule is KEEP


def test_the_whole_module_rule_is_told_apart_from_op_rules():
    """`module_rule` is the closest rule about everything inside, whatever single ops are told there."""
    policy = BASE.with_module("a", FP32).with_module("a.b", LOW).with_op("relu", KEEP, module="a.b")
    assert module_rule(policy, (Place("a"),)) is FP32
    assert module_rule(policy, (Place("a"), Place("a.b.c"))) is LOW
    assert module_rule(policy, (Place("b"),)) is None
    assert module_rule(policy, ()) is None


@pytest.mark.parametrize(("module", "rule"), [(FP32, FP32), (KEEP, KEEP), (LOW, BANNED)])
def test_a_ban_yields_to_a_module_out_of_mixed_precision(module, rule):
    """In a float32 or untouched module the op is safe or the user's business; in a 16-bit one it is what was banned."""
    decision = resolve(BASE.with_module("head", module), "binary_cross_entropy", "head")
    assert decision.rule is rule
    assert bool(decision.replacement) is (rule is BANNED)


def test_an_op_rule_for_the_module_lifts_the_ban():
    """Saying it of the op itself, in that place, is closer than the list."""
    policy = BASE.with_op("F.binary_cross_entropy", FP32, module="head")
    assert resolve(policy, "binary_cross_entropy", "head").rule is FP32
    assert resolve(policy, "binary_cross_entropy", "body").rule is BANNED


def test_explain_gives_reason_and_source():
    """A list's row brings its link, a rule its line and its reason, and what nothing speaks of says so."""
    policy = BASE.with_op("F.exp", KEEP, module="head", reason="measured").with_op("gelu", FP32)
    assert policy.explain("softmax") == Decision(
        "softmax",
        CastRule.FP32_OUT,
        "the kernel accumulates in float32 and is asked to keep that result (dtype=float32) instead of rounding it",
        "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/autocast_mode.h",
        Level.BASE,
    )
    assert policy.explain("exp", "head") == Decision(
        "exp", KEEP, "measured", "op exp in head: keep because measured", Level.OP_IN_MODULE
    )
    assert policy.explain("gelu").reason == "this policy's rule for gelu"
    assert policy.explain("relu") == Decision(
        "relu", KEEP, "on no list of torch cuda 2.13, so it runs in the dtype of its inputs", "base torch cuda 2.13"
    )
    banned = policy.explain("F.binary_cross_entropy")
    assert "binary_cross_entropy_with_logits" in banned.replacement
    assert policy.with_module("x", FP32).explain("relu", "x.y").reason == "this policy's rule for everything inside x"


MODULES = st.sampled_from(["a", "a.b", "a.*", "**", "**.b", "class Linear", "class Module", "b"])
LINES = st.one_of(
    st.tuples(st.sampled_from(["linear", "exp"]), st.none() | MODULES, st.sampled_from(list(CastRule))),
    st.tuples(st.none(), MODULES, st.sampled_from([LOW, FP32, KEEP])),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(LINES, max_size=5), st.sampled_from([None, "", "a", "a.b", "a.c.b", "b"]))
def test_a_rule_that_is_not_the_winner_changes_nothing(lines, path):
    """Dropping every rule but the one that decided leaves the decision (a ban aside, which looks at the op's own)."""
    policy = BASE
    for op, module, rule in lines:
        if op is None:
            policy = policy.with_module(module, rule)
        elif rule is not CastRule.FP32_OUT:
            policy = policy.with_op(op, rule, module)
    decision = resolve(policy, "linear", path, torch.nn.Linear)
    winner = [r for r in policy.rules if decision.source.startswith(_line(r))]
    alone = Policy(policy.base, tuple(winner[:1]))
    assert resolve(alone, "linear", path, torch.nn.Linear) == decision


def _line(rule):
    return str(Policy(BASE.base, (rule,))).splitlines()[1]
