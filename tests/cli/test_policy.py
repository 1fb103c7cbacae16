"""`mixprec policy` and `mixprec explain OP` show what the policies decide, and nothing of their own."""

from __future__ import annotations

import pytest

from mixprec import Policy
from mixprec.cli._named_policies import NAMED, SUMMARY
from mixprec.cli._options import DEVICES
from mixprec.cli.policy import MEANING


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMED)
def test_json_is_the_policys_own_table(mixprec, name, device):
    """For every named policy and device: the ops and rules of the document are those of `Policy.ops`, and its text
    form parses back to the policy.
    """
    answer = mixprec("policy", name, "--device", device, "--format", "json").json
    policy = Policy.named(name, device)

    assert {row["op"]: row["rule"] for row in answer["ops"]} == {op: rule.value for op, rule in policy.ops.items()}
    assert Policy.parse(answer["text"]) == policy


def test_text_names_every_op_once_under_its_rule(mixprec):
    """The words below the heading of a rule are the ops that have it."""
    policy = Policy.named("torch", "cuda")
    words = mixprec("policy", "torch", "--device", "cuda").out.split()

    for op in policy.ops:
        assert words.count(op) == 1, op


def test_every_rule_has_a_meaning_to_show():
    """Each cast rule has its sentence, and each named policy its summary."""
    assert {rule.value for rule in MEANING} == {"low", "fp32", "fp32_out", "widest", "keep", "banned"}
    assert set(SUMMARY) == set(NAMED)


def test_without_a_name_the_policies_are_listed(mixprec):
    """`mixprec policy` names all four."""
    out = mixprec("policy").out

    assert [line.split()[0] for line in out.splitlines() if line.split()[0] in NAMED] == list(NAMED)


def test_an_unknown_policy_is_answered_with_the_closest(mixprec):
    """A mistyped policy ends with exit code 2 and the right name."""
    answer = mixprec("policy", "carefull")

    assert answer.code == 2
    assert "did you mean 'careful'?" in answer.err


@pytest.mark.parametrize("op", ["softmax", "mm", "binary_cross_entropy", "relu"])
def test_explaining_an_op_gives_every_policys_decision_on_every_device(mixprec, op):
    """Policies × devices, each with the decision that `Policy.explain` makes, its reason and its source."""
    answer = mixprec("explain", op, "--format", "json").json

    assert answer["kind"] == "op"
    assert [(row["policy"], row["device"]) for row in answer["decisions"]] == [(n, d) for n in NAMED for d in DEVICES]
    for row in answer["decisions"]:
        decision = Policy.named(row["policy"], row["device"]).explain(op)
        assert (row["rule"], row["reason"]) == (decision.rule.value, decision.reason)
        assert row["reason"]


def test_any_spelling_of_an_op_is_understood(mixprec):
    """`F.softmax`, `torch.softmax` and `softmax` are one op."""
    answers = [mixprec("explain", name, "--format", "json").json for name in ("softmax", "F.softmax", "torch.softmax")]

    assert answers[0] == answers[1] == answers[2]


def test_text_gives_each_reason_once(mixprec):
    """In text each distinct reason is said once, with the policies and devices that it holds for."""
    out = mixprec("explain", "binary_cross_entropy").out

    assert out.count("Write instead: ") == 1
    assert "binary_cross_entropy_with_logits" in out
