"""A policy is a value: equal by content, hashable, never mutated, and strict about what it is given."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest
import torch

from mixprec._policy import Base, CastRule, Policy, Rule, Sharing
from mixprec._policy.selector import class_selector, path_selector
from mixprec.errors import InvalidValueError, UnknownNameError

FP32, KEEP = CastRule.FP32, CastRule.KEEP


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.Linear(2, 2)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(2)])


def test_policies_are_values():
    """Equal content is equal and hashes alike, whichever way it was built; copies and pickles are equal."""
    one = Policy.torch("cpu").with_op("F.exp", "fp32").with_module(torch.nn.LayerNorm, "keep")
    layer_norm = class_selector("torch.nn.modules.normalization.LayerNorm")
    other = Policy(Base("torch", "cpu"), (Rule("exp", None, FP32), Rule(None, layer_norm, KEEP)), Sharing.WEIGHTS)
    assert one == other
    assert len({one, other, copy.deepcopy(one), pickle.loads(pickle.dumps(one))}) == 1
    assert one != one.with_sharing("everything")
    assert Policy.torch("cpu") != Policy.torch("cuda")


def test_nothing_can_be_mutated():
    """Deriving leaves the original as it was; fields, tables and rules refuse assignment."""
    policy = Policy.uniform()
    before = str(policy)
    policy.with_op("exp", "keep").with_module("a", "fp32").with_sharing("everything")
    assert str(policy) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.rules = ()
    with pytest.raises(TypeError):
        policy.ops["exp"] = KEEP
    rules = [Rule("exp", None, KEEP)]
    held = Policy(Base("uniform"), rules)
    rules.clear()
    assert held.ops["exp"] is KEEP


def test_the_same_subject_again_replaces():
    """A rule for the same op and place is a change of mind, not a second rule; another place is another rule."""
    policy = Policy.uniform().with_op("exp", "keep").with_op("log", "keep").with_op("torch.exp", "fp32")
    assert policy == Policy.uniform().with_op("log", "keep").with_op("exp", "fp32")
    assert len(policy.with_op("exp", "keep", module="a").rules) == 3


def test_ops_are_the_base_and_the_changes():
    """`.ops` is sorted, holds what rules outside modules say, and leaves the rest to the base."""
    base = Policy.torch("cuda", version="2.13")
    policy = base.with_op("exp", "keep").with_op("gelu", "fp32").with_op("tan", "keep", module="x")
    assert dict(policy.ops) == {**base.ops, "exp": KEEP, "gelu": FP32}
    assert list(policy.ops) == sorted(policy.ops)
    assert [r.where for r in policy.module_rules] == [path_selector("x")]


def test_an_instance_becomes_its_path():
    """A module object is looked up in its model once; the model itself is everything."""
    model = torch.nn.Sequential(Block(), Block())
    policy = Policy.uniform().with_module(model[1].norms[0], "fp32", within=model)
    assert policy == Policy.uniform().with_module("1.norms.0", "fp32")
    assert Policy.uniform().with_module(model, "keep", within=model) == Policy.uniform().with_module("**", "keep")


def test_an_instance_needs_its_model():
    """Without the model, or in a model that does not hold it, an instance has no path."""
    model, stranger = Block(), torch.nn.Linear(1, 1)
    with pytest.raises(
        InvalidValueError, match="'an instance of Linear'; accepted is a path glob, a class, or an inst"
    ):
        Policy.uniform().with_module(model.attention, "fp32")
    with pytest.raises(InvalidValueError, match="accepted is a module inside the Block given"):
        Policy.uniform().with_module(stranger, "fp32", within=model)
    assert Policy.uniform().with_module(model.attention, "fp32", within=model).module_rules


@pytest.mark.parametrize(
    ("refused", "accepted", "error", "says"),
    [
        (("sofmax", "fp32"), ("softmax", "fp32"), UnknownNameError, "did you mean 'softmax'"),
        (("exp", "fp64"), ("exp", "fp32"), UnknownNameError, "rule is 'fp64'; accepted is one of banned, fp32"),
        (("exp", None), ("exp", "keep"), InvalidValueError, "a CastRule or its name: low, fp32, fp32_out"),
        (("exp", "fp32_out"), ("sum", "fp32_out"), InvalidValueError, "'fp32' for this op; 'fp32_out' only for ops"),
        (("lib::norm", "fp32_out"), ("lib::norm", "fp32"), InvalidValueError, "'fp32' for this op"),
        (("exp", "fp32", 3), ("exp", "fp32", "3"), InvalidValueError, "module is 3; accepted is a path glob"),
    ],
)
def test_a_refused_op_rule_beside_an_accepted_one(refused, accepted, error, says):
    """What cannot be meant is refused with what can."""
    with pytest.raises(error, match=says):
        Policy.uniform().with_op(*refused)
    assert Policy.uniform().with_op(*accepted).rules


@pytest.mark.parametrize("rule", ["fp32_out", "widest", "banned"])
def test_a_whole_module_cannot_have_a_rule_of_one_op(rule):
    """Only LOW, FP32 and KEEP mean something for everything inside; the error shows how to say it of one op."""
    with pytest.raises(InvalidValueError, match=rf"'low' or 'fp32' or 'keep'. '{rule}' speaks of one op: with_op\(OP"):
        Policy.uniform().with_module("encoder", rule)
    assert Policy.uniform().with_op("sum", rule, module="encoder").rules
    assert Policy.uniform().with_module("encoder", "low").rules


def test_a_rule_speaks_of_something():
    """No op and no module is no rule."""
    with pytest.raises(InvalidValueError, match=r"an op, a module, or both. Use '\*\*' for all"):
        Rule(None, None, FP32)
    assert Rule(None, path_selector("**"), FP32)


@pytest.mark.parametrize("name", ["uniform", "lean", "careful"])
def test_named_policies_need_no_device(name):
    """Our lists are the same everywhere, so a device given is not part of them."""
    assert Policy.named(name) == Policy.named(name, "cuda") == getattr(Policy, name)()
    assert str(Policy.named(name)) == f"base {name}"


def test_torch_needs_a_device():
    """PyTorch has a list per device type and none without."""
    with pytest.raises(InvalidValueError, match="device is None; accepted is a device type"):
        Policy.named("torch")
    assert Policy.named("torch", "mps") == Policy.torch("mps")


@pytest.mark.parametrize(
    ("refused", "says"),
    [
        (("torch", "cuda:0"), "device type is 'cuda:0'; accepted is a known name; did you mean 'cuda'"),
        (("torch", "hpu"), "one list per device type"),
        (("lean", "cuda"), "The list|the same on every device"),
        (("torch", "cpu", "1.13"), "version of PyTorch is '1.13'; accepted is 2.6 or later"),
        (("apex",), "policy is 'apex'; accepted is one of careful, lean, torch, uniform"),
    ],
)
def test_a_refused_base(refused, says):
    """A base that does not exist says which do; the nearest one that does is accepted."""
    with pytest.raises(InvalidValueError, match=says):
        Base(*refused)
    assert Base("torch", "cuda", "2.6.0+cu124") == Base("torch", "cuda", "2.6")


def test_sharing_follows_the_base_unless_said():
    """`lean` shares the casts of activations, the others those of weights; either can be chosen."""
    assert Policy.lean().sharing is Sharing.EVERYTHING
    assert Policy.uniform().sharing is Policy.torch("cpu").sharing is Sharing.WEIGHTS
    assert Policy.lean().with_sharing(Sharing.WEIGHTS).sharing is Sharing.WEIGHTS
    with pytest.raises(UnknownNameError, match="casts is 'all'; accepted is one of everything, weights"):
        Policy.lean().with_sharing("all")


def test_policies_need_no_torch():
    """A policy is built, printed, parsed and explained without PyTorch being imported."""
    code = (
        "import sys; from mixprec._policy import Policy, difference;"
        "p = Policy.torch('cuda').with_op('F.softmax', 'fp32', module='a.*');"
        "assert Policy.parse(str(p)) == p and p.explain('exp', 'a.b').rule == 'fp32' and not difference(p, p);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
