"""A policy's text and JSON read back to the same policy, and what does not parse says where and why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._policy import Base, CastRule, Policy, Rule, Sharing
from mixprec._policy.names import KNOWN
from mixprec._policy.rule import MODULE_RULES
from mixprec._policy.selector import class_selector, path_selector
from mixprec._policy.spellings import TAKES_DTYPE
from mixprec.errors import InvalidValueError, MixprecError, PolicySyntaxError, UnknownNameError

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True)

_WORD = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S"), exclude_characters=":#."), min_size=1)
_PATHS = st.lists(_WORD | st.sampled_from(["*", "**", "class", "in", "path", "because"]), min_size=1, max_size=4)
_PLACES = st.one_of(
    _PATHS.map(".".join).map(path_selector),
    _WORD.filter(lambda w: not set(w) & set("*?[")).map(class_selector),
)
_OPS = st.sampled_from(sorted(KNOWN)) | st.just("mylib::norm") | st.just("my.lib::norm.out2")
_REASONS = st.text(st.characters(codec="utf-8", exclude_characters="#")).map(lambda t: " ".join(t.split()))
_RULES = st.sampled_from(list(CastRule))
_ENTRIES = st.one_of(
    st.tuples(_OPS, st.none() | _PLACES, _RULES, _REASONS).filter(
        lambda e: e[2] is not CastRule.FP32_OUT or e[0] in TAKES_DTYPE
    ),
    st.tuples(st.none(), _PLACES, st.sampled_from(MODULE_RULES), _REASONS),
).map(lambda e: Rule(*e))
_BASES = st.one_of(
    st.sampled_from(["uniform", "lean", "careful"]).map(Base),
    st.tuples(
        st.just("torch"), st.sampled_from(["cpu", "cuda", "mps", "xpu"]), st.none() | st.sampled_from(["2.6", "2.13"])
    ).map(lambda b: Base(*b)),
)
POLICIES = st.builds(Policy, _BASES, st.lists(_ENTRIES, max_size=6).map(tuple), st.sampled_from(list(Sharing)))


@SETTINGS
@given(POLICIES)
def test_the_text_reads_back(policy):
    """`Policy.parse(str(policy))` is the policy, for any base, rules, places, reasons and sharing."""
    assert Policy.parse(str(policy)) == policy
    assert hash(Policy.parse(str(policy))) == hash(policy)


@SETTINGS
@given(POLICIES)
def test_the_json_reads_back(policy):
    """The JSON survives a real serialisation, and what explains (`ops`) is not needed to read it."""
    document = json.loads(json.dumps(policy.to_json()))
    assert Policy.from_json(document) == policy
    del document["ops"]
    assert Policy.from_json(document) == policy


@SETTINGS
@given(st.text(max_size=80) | st.text("opmdule class in:softmax fp32.*\n#", max_size=80))
def test_any_text_parses_or_says_why(text):
    """No text crashes the parser: it is a policy or a `PolicySyntaxError` with a line that exists."""
    read = _parsed("base uniform\n" + text)
    if isinstance(read, PolicySyntaxError):
        assert 1 < read.line <= 1 + len(text.splitlines())
    else:
        assert Policy.parse(str(read)) == read


def _parsed(text):
    try:
        return Policy.parse(text)
    except PolicySyntaxError as error:
        return error


def test_the_text_is_one_line_per_rule():
    """The text a person writes is the text that is printed."""
    policy = (
        Policy.torch("cuda")
        .with_op("F.softmax", "fp32", module="encoder.*", reason="it overflowed")
        .with_op("exp", CastRule.KEEP)
        .with_op("softmax", "fp32", module="class Attention")
        .with_module("encoder.layers.3", "FP32")
        .with_module("torch.nn.LayerNorm", "keep")
        .with_sharing("everything")
    )
    assert str(policy).splitlines() == [
        "base torch cuda",
        "casts everything",
        "op softmax in encoder.*: fp32 because it overflowed",
        "op exp: keep",
        "op softmax in class Attention: fp32",
        "module encoder.layers.3: fp32",
        "class torch.nn.LayerNorm: keep",
    ]


def test_comments_blank_lines_and_spacing_mean_nothing():
    """A file that people keep has comments."""
    text = """
    # our policy
    base   torch cuda  2.6     # pinned
    op F.softmax :  FP32-OUT
    """
    assert Policy.parse(text) == Policy.torch("cuda", version="2.6").with_op("softmax", "fp32_out")


@pytest.mark.parametrize(
    ("refused", "accepted", "line", "says"),
    [
        ("", "base uniform", 1, "'base NAME"),
        ("op exp: keep", "base uniform\nop exp: keep", 1, "as the first line"),
        ("base uniform\nbase lean", "base uniform", 2, "as the first line, and only there"),
        ("base unifrom", "base uniform", 1, "did you mean 'uniform'"),
        ("base torch", "base torch cpu", 1, "one of cpu, cuda, mps, xpu"),
        ("base torch cuda:0", "base torch cuda", 1, "did you mean 'cuda'"),
        ("base torch cuda 2.5", "base torch cuda 2.6", 1, "2.6 or later"),
        ("base uniform cpu", "base uniform", 1, "the same on every device"),
        ("base torch cuda 2.6 x", "base torch cuda 2.6", 1, "'base NAME"),
        ("base uniform\n\nop sofmax: fp32", "base uniform\n\nop softmax: fp32", 3, "did you mean 'softmax'"),
        ("base uniform\nop exp: fp23", "base uniform\nop exp: fp32", 2, "did you mean 'fp32'"),
        ("base uniform\nop exp: fp32_out", "base uniform\nop sum: fp32_out", 2, "only for ops that take dtype="),
        ("base uniform\nmodule x: widest", "base uniform\nmodule x: fp32", 2, "'low' or 'fp32' or 'keep'"),
        ("base uniform\nop exp = fp32", "base uniform\nop exp: fp32", 2, "'op NAME: RULE'"),
        ("base uniform\nmodule a in b: fp32", "base uniform\nop exp in b: fp32", 2, "'module PATH: RULE'"),
        ("base uniform\ncasts all", "base uniform\ncasts everything", 2, "one of everything, weights"),
        ("base uniform\nclass A*: fp32", "base uniform\nmodule A*: fp32", 2, "Globs are for module paths"),
        ("base uniform\nrule exp: fp32", "base uniform\nop exp: fp32", 2, "'class NAME: RULE'"),
    ],
)
def test_a_line_that_does_not_parse_beside_one_that_does(refused, accepted, line, says):
    """The error names the line, quotes it, and says what is accepted."""
    with pytest.raises(PolicySyntaxError, match=says) as error:
        Policy.parse(refused)
    assert error.value.line == line
    assert str(error.value).startswith(f"line {line} of the policy is ")
    assert Policy.parse(accepted)


@pytest.mark.parametrize("reason", ["two\nlines", "with # a mark", " spaced ", "two  spaces"])
def test_a_reason_that_could_not_be_written_down_is_refused(reason):
    """The text form is exact, so a reason is one plain line."""
    with pytest.raises(InvalidValueError, match="one line, single spaces, without '#'"):
        Policy.uniform().with_op("exp", "keep", reason=reason)
    assert Policy.uniform().with_op("exp", "keep", reason="one line: with a colon, because why not")


@pytest.mark.parametrize(
    ("document", "error", "says"),
    [
        ([], InvalidValueError, "schema of the policy is"),
        ({"schema": 2}, InvalidValueError, "schema of the policy is 2; accepted is 1"),
        ({"schema": 1}, InvalidValueError, "an entry 'base'"),
        ({"schema": 1, "base": {"name": "leen"}}, UnknownNameError, "did you mean 'lean'"),
        ({"schema": 1, "base": {"name": "lean"}, "rules": [{"op": "exp"}]}, InvalidValueError, "an entry 'rule'"),
    ],
)
def test_json_that_is_no_policy_is_refused(document, error, says):
    """A document says which entry is wrong; the smallest right one is a schema and a base."""
    with pytest.raises(error, match=says) as caught:
        Policy.from_json(document)
    assert isinstance(caught.value, MixprecError)
    assert Policy.from_json({"schema": 1, "base": {"name": "lean"}}) == Policy.lean()


def test_json_explains_every_op():
    """`ops` holds the rule, reason, source and replacement of each op that has a rule."""
    ops = Policy.careful().with_op("gelu", "fp32").to_json()["ops"]
    assert ops["gelu"] == {
        "rule": "fp32",
        "reason": "this policy's rule for gelu",
        "source": "op gelu: fp32",
        "level": "op",
        "replacement": "",
    }
    assert all(entry["reason"] and entry["source"] for entry in ops.values())
