"""Who is accused: the first op that made Inf or NaN of finite numbers, if harm came of it, and nobody else."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._trace import Tracer, from_document, locate, source_line
from mixprec.records import Location, OpRecord, TensorStats, to_json


def stats(infs=0, nans=0, dtype="float16", negative=0):
    return TensorStats(dtype, (4,), 4, infs=infs, nans=nans, amax=1.0, negative_infs=negative)


def op(index, name, inputs=(), outputs=(), sources=None, **more):
    sources = sources if sources is not None else (index - 1,) * len(inputs)
    return OpRecord(name, "forward", Location(line=index), inputs, outputs, index=index, sources=sources, **more)


GOOD, INF, NAN = stats(), stats(infs=2), stats(nans=1)


def test_inf_and_nan_have_their_own_origins():
    """The Inf's maker and the NaN's maker are both named, and the earlier is first."""
    origin = locate(
        [
            op(1, "aten.mul.Tensor", (GOOD,), (INF,), (None,)),
            op(2, "aten.sub.Tensor", (INF, INF), (NAN,)),
            op(3, "aten.sum.default", (NAN,), (NAN,)),
        ]
    )

    assert (origin.first_inf.index, origin.nan_from_inf.index, origin.first_nan) == (1, 2, None)
    assert origin.first.index == 1


def test_order_does_not_matter_and_documents_will_do():
    """Records from JSON, shuffled, give the same origin."""
    records = [op(1, "aten.mul.Tensor", (GOOD,), (INF,), (None,)), op(2, "aten.sub.Tensor", (INF, INF), (NAN,))]
    through = [from_document(json.loads(json.dumps(to_json(record)))) for record in reversed(records)]

    assert through[::-1] == records
    assert locate(through) == locate(records)


def test_an_inf_that_every_reader_makes_finite_is_hidden_not_guilty():
    """An overflow that softmax consumes harms nothing: it is listed as hidden."""
    origin = locate(
        [
            op(1, "aten.add.Tensor", (GOOD,), (INF,), (None,)),
            op(2, "aten._softmax.default", (INF,), (GOOD,)),
        ]
    )

    assert origin.clean
    assert [record.index for record in origin.hidden] == [1]


def test_an_inf_with_a_second_reader_that_keeps_it_is_guilty():
    """The same overflow is accused when it also reaches the loss."""
    origin = locate(
        [
            op(1, "aten.add.Tensor", (GOOD,), (INF,), (None,)),
            op(2, "aten._softmax.default", (INF,), (GOOD,), (1,)),
            op(3, "aten.mean.default", (INF,), (INF,), (1,)),
        ]
    )

    assert origin.first_inf.index == 1


def test_whoever_only_looks_changes_nothing():
    """Reading an infinite loss with `item` or comparing it does not make it harmless."""
    origin = locate(
        [
            op(1, "aten.mean.default", (GOOD,), (INF,), (None,)),
            op(2, "aten._local_scalar_dense.default", (INF,), ()),
            op(3, "aten.eq.Tensor", (INF,), (stats(dtype="bool"),), (1,)),
            op(4, "aten.abs.default", (INF,), (INF,), (1,), call="isfinite"),
        ]
    )

    assert origin.first_inf.index == 1


@pytest.mark.parametrize(
    ("name", "scalars", "accused"),
    [
        ("aten.masked_fill.Scalar", (("value", "-inf"),), False),
        ("aten.masked_fill.Scalar", (("value", -1e9),), True),
        ("aten.full.default", (("fill_value", "-inf"),), False),
        ("aten.full.default", (("fill_value", -1e9),), True),
        ("aten.empty.memory_format", (), False),
        ("aten._amp_foreach_non_finite_check_and_unscale_.default", (), False),
        ("aten.add.Tensor", (), True),
    ],
)
def test_what_is_made_on_purpose_is_not_accused(name, scalars, accused):
    """A constant Inf was asked for; a finite constant that the format rounds to Inf was not."""
    records = [op(1, name, (GOOD,), (INF,), (None,), scalars=scalars), op(2, "aten.mean.default", (INF,), (INF,))]

    assert (locate(records).first_inf is not None) is accused


def test_a_by_product_of_attention_is_not_accused():
    """−Inf in the logsumexp that attention keeps for backward is no result; in the result it is."""
    name = "aten._scaled_dot_product_flash_attention_for_cpu.default"

    assert locate([op(1, name, (GOOD,), (GOOD, INF), (None,))]).clean
    assert not locate([op(1, name, (GOOD,), (INF, GOOD), (None,))]).clean


def test_what_comes_from_outside_is_given():
    """A NaN in a weight that no traced op wrote is named where it came in; a mask of −Inf is not."""
    into = op(1, "aten.mm.default", (GOOD, NAN), (NAN,), (None, None))
    assert locate([into]).given is into

    mask = stats(infs=4, negative=4)
    masked = [
        op(1, "aten.add.Tensor", (GOOD, mask), (mask,), (None, None)),
        op(2, "aten._softmax.default", (mask,), (NAN,)),
    ]
    assert locate(masked).given is None
    assert locate(masked).first.op == "aten._softmax.default"


def leads_to_an_end(records, record):
    """The specification of harm: a path of bad outputs from `record` to one that nobody reads."""
    readers = [
        r for r in records if any(s == record.index and not i.finite for s, i in zip(r.sources, r.inputs, strict=True))
    ]
    return not record.outputs[0].finite and (not readers or any(leads_to_an_end(records, r) for r in readers))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 7), max_size=3)), min_size=1, max_size=8))
def test_harm_is_a_path_to_an_end(drawn):
    """In every graph of ops the Infs that are accused or hidden are those that a walk along all paths says."""
    records = []
    for index, (bad, sources) in enumerate(drawn):
        known = [source for source in sources if source < index]
        inputs = tuple(records[source].outputs[0] for source in known)
        records.append(op(index, "aten.add.Tensor", inputs, (INF if bad else GOOD,), tuple(known)))
    made = [r for r in records if not r.outputs[0].finite and all(stats.finite for stats in r.inputs)]

    origin = locate(records)

    assert origin.first_inf == next((r for r in made if leads_to_an_end(records, r)), None)
    assert list(origin.hidden) == [r for r in made if not leads_to_an_end(records, r)]


FAULTS = {
    "square": (lambda x: (x * 400.0) ** 2, lambda x: x**2),
    "exp": (lambda x: torch.exp(x * 20), lambda x: torch.exp(x)),
    "log of 0": (lambda x: torch.log(x - x), lambda x: torch.log(x + 2)),
    "0/0": (lambda x: (x - x) / (x - x), lambda x: x / (x + 2)),
    "sum": (lambda x: (x.abs() + 1).expand(70000, 4).sum(), lambda x: (x.abs() + 1).expand(70, 4).sum()),
    "-1e9 in half": (lambda x: x + x.new_tensor(-6e4) + x.new_tensor(-6e4), lambda x: x - 1),
    "mean of nothing": (lambda x: x[:0].mean(), lambda x: x[:1].mean()),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_named_and_their_neighbours_are_not(name):
    """Each fault's line is named in float16; the healthy neighbour on the next line is clean."""
    bad, good = FAULTS[name]
    x = torch.linspace(-1, 1, 4).half().requires_grad_()
    with Tracer() as tracer:
        bad(x.clone()).float().sum().backward()
    first = locate(tracer.records).first
    x.grad = None
    with Tracer() as healthy:
        good(x.clone()).float().sum().backward()

    assert f'"{name}": (' in source_line(first.location)
    assert locate(healthy.records).clean


def test_a_hidden_nan_is_listed():
    """NaN under `where` is hidden in forward; the trap it sets for backward is found there."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with Tracer() as tracer:
        root = torch.where(x > 0, torch.sqrt(x) / x, torch.zeros_like(x))
        root.sum().backward()

    origin = locate(tracer.records)

    assert origin.hidden[0].op == "aten.div.Tensor"
    assert origin.first.phase == "backward"


def test_softmax_over_masks_is_clean_in_all_forms():
    """`masked_fill`, an additive mask from outside, `F.scaled_dot_product_attention` with a mask: none is accused."""
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    causal = torch.full((4, 4), float("-inf")).triu(1)
    with Tracer() as tracer:
        a = F.scaled_dot_product_attention(q, q, q, attn_mask=causal)
        b = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        c = F.softmax(q @ q.transpose(-1, -2) + causal, -1)
        (a.sum() + b.sum() + c.sum()).backward()

    assert locate(tracer.records).clean


@pytest.mark.parametrize("name", ["argmax", "topk", "sort", "multinomial"])
@pytest.mark.parametrize(("held", "accused"), [(stats(infs=2, negative=2), False), (INF, True), (NAN, True)])
def test_minus_infinity_that_is_only_chosen_from_is_not_accused(name, held, accused):
    """−Inf is chosen last, and that is what it is for; +Inf is chosen first, and NaN is nothing to choose from."""
    chosen = (stats(dtype="int64"),) if name in ("argmax", "multinomial") else (held, stats(dtype="int64"))
    origin = locate(
        [
            op(1, "aten.log.default", (GOOD,), (held,), (None,)),
            op(2, "aten.add.Tensor", (held, GOOD), (held,), (1, None)),
            op(3, f"aten.{name}.default", (held,), chosen, (2,)),
        ]
    )

    assert origin.clean is not accused


def test_minus_infinity_that_is_chosen_from_and_computed_with_is_accused():
    """What argmax reads and the loss as well is the loss's."""
    held = stats(infs=2, negative=2)
    records = [
        op(1, "aten.log.default", (GOOD,), (held,), (None,)),
        op(2, "aten.argmax.default", (held,), (stats(dtype="int64"),), (1,)),
        op(3, "aten.mean.default", (held,), (held,), (1,)),
    ]

    assert locate(records).first_inf.index == 1
    assert locate(records[:2]).clean


def test_sampling_from_masked_logits_harms_nothing_in_torch():
    """A real sampler: log of a distribution with zeros, Gumbel noise, argmax, and top-k of masked scores."""
    p = torch.tensor([0.5, 0.5, 0.0])
    with Tracer() as tracer:
        (p.log() + torch.zeros(3)).argmax()
        p.log().topk(2)
    assert locate(tracer.records).clean
    with Tracer() as tracer:
        p.log().mean()
    assert not locate(tracer.records).clean
