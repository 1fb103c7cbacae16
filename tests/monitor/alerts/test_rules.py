"""Every rule finds its planted fault in a record, and is silent beside it: the nearest healthy neighbour."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mixprec.causes import cause_names
from mixprec.monitor import ModuleRecord, StepRecord
from mixprec.monitor.alerts import Alerts, all_rules

NAN, INF = math.nan, math.inf


def healthy(step: int, **facts) -> StepRecord:
    """A step of a float16 training as it should be; looked at every fifth step."""
    looked = step % 5 == 0
    module = ModuleRecord("fp16", -3.0, 4.0, 14.0, "fp16", 2.0, 0.5, 0.02, 3.0, 0.3, 0.02)
    usual = StepRecord(
        step,
        looked=looked,
        loss=2.0 / (1 + step) + 0.01 * (step % 3),
        scale=65536.0,
        scale_after=65536.0,
        event="hold",
        grad_norm=1.0 + 0.1 * (step % 4),
        lr=1e-3,
        format="fp16",
        zero=0.3 if looked else None,
        subnormal=0.02 if looked else None,
        update_ratio=1e-3 if looked else None,
        unchanged=0.0 if looked else None,
        modules={"blocks.0": module} if looked else {},
    )
    return replace(usual, **facts)


def skip(step: int, benign: bool = False, **facts) -> StepRecord:
    """A skipped step."""
    return healthy(step, reason="found_inf", benign=benign, event="back_off", **{"grad_norm": INF, **facts})


def with_module(step: int, **facts) -> StepRecord:
    """A step that was looked at, whose one module has other facts."""
    base = healthy(5 * step)
    return replace(base, modules={"blocks.0": replace(base.modules["blocks.0"], **facts)})


def growing(bits) -> list[StepRecord]:
    return [with_module(i, headroom=b) for i, b in enumerate(bits)]


def norms(values, losses=None) -> list[StepRecord]:
    rising = losses or [0.1 * (i + 1) for i in range(len(values))]
    return [healthy(i, grad_norm=v, loss=loss) for i, (v, loss) in enumerate(zip(values, rising, strict=True))]


PLANTED = {
    "MP002": [healthy(i, clipped_scaled=True, clipped_norm=1e-5, grad_norm=1.0) for i in range(3)],
    "MP012": [skip(i, scale=65536 / 2**i, loss=NAN) for i in range(4)],
    "MP013": [skip(9, scale=1.0, scale_after=0.5)],
    "MP014": [healthy(9, scale=2.0**25, grad_norm=0.0)],
    "MP029": [skip(i) if i % 20 == 7 else healthy(i) for i in range(88)],
    "MP030": growing([6, 5.5, 5, 4.2, 3.5, 2.6, 1.9]),
    "MP038": [healthy(5, bad_buffers=("norm.running_mean",))],
    "MP039": norms([1.0] * 60 + [12, 15, 20, 30, 50]),
    "MP060": [replace(healthy(5 * i), zero=0.5, subnormal=0.3) for i in range(3)],
    "MP061": [healthy(5 * i, unchanged=0.6) for i in range(3)],
    "MP133": [healthy(3, loss=NAN)],
    "MP134": [with_module(1, high=NAN)],
    "MP135": [healthy(5, bad_weights=("blocks.0.weight",))],
    "MP144": [healthy(i, loss=0.7, grad_norm=None) for i in range(30)],
}

NEIGHBOURS = {
    "MP002": {
        "unscaled before clipping": [healthy(i, clipped_norm=0.5) for i in range(3)],
    },
    "MP012": {
        "warm-up": [skip(i, benign=True, scale=2.0**16 / 2**i) for i in range(10)],
        "three in a row": [healthy(0), *(skip(i) for i in range(1, 4)), healthy(4)],
    },
    "MP013": {"scale of 1": [healthy(9, scale=1.0, scale_after=1.0)]},
    "MP014": {
        "large scale, gradients there": [healthy(9, scale=2.0**26)],
        "no gradient, usual scale": [healthy(9, grad_norm=0.0)],
    },
    "MP029": {
        "growth probes": [skip(i, benign=True) if i % 20 == 7 else healthy(i) for i in range(100)],
        "one burst": [skip(i) if 40 <= i < 43 else healthy(i) for i in range(100)],
    },
    "MP030": {
        "close but steady": growing([1.5] * 8),
        "growing far away": growing([14, 13, 12, 11, 10, 9, 8]),
        "coming back": growing([6, 5, 4, 1.5, 1.2, 1.9, 2.5]),
        "a mask of minus infinity": [with_module(1, low=-INF, headroom=-INF)],
        "gradients at the edge": [with_module(i, grad_headroom=0.1 * i) for i in range(8)],
    },
    "MP038": {"finite": [healthy(5)]},
    "MP039": {
        "one spike": norms([1.0] * 60 + [50] + [1.0] * 6),
        "learning sets in": norms([0.05] * 60 + [0.6, 0.7, 0.8, 0.9, 1.0], [3.4] * 60 + [3.0, 2.7, 2.4, 2.1, 1.8]),
        "short run": norms([1.0] * 20 + [12, 15, 20, 30, 50]),
    },
    "MP060": {
        "zeros of ReLU": [replace(healthy(5 * i), zero=0.95, subnormal=0.002) for i in range(5)],
        "bfloat16": [replace(healthy(5 * i), zero=0.5, subnormal=0.4, format="bf16") for i in range(5)],
        "one look": [replace(healthy(0), zero=0.5, subnormal=0.4), *(healthy(5 * i) for i in range(1, 4))],
    },
    "MP061": {
        "float32 weights": [healthy(5 * i, unchanged=None) for i in range(4)],
        "learning rate 0 in warm-up": [healthy(5 * i, unchanged=1.0, lr=0.0) for i in range(4)],
        "few": [healthy(5 * i, unchanged=0.1) for i in range(4)],
    },
    "MP133": {
        "large": [healthy(3, loss=1e30)],
        "a scaled penalty while the scale comes down": [*(skip(i, loss=INF) for i in range(3)), healthy(3)],
    },
    "MP134": {"infinite mask": [with_module(1, low=-INF)], "the loss is NaN too": [with_module(1)]},
    "MP135": {"finite": [healthy(5)]},
    "MP144": {
        "with gradients": [healthy(i, loss=0.7) for i in range(40)],
        "solved": [healthy(i, loss=0.0, grad_norm=0.0) for i in range(40)],
        "not that long": [healthy(i, loss=0.7, grad_norm=None) for i in range(29)],
    },
}


def said(records) -> list[str]:
    """The codes that are said over `records`."""
    alerts = Alerts()
    return [finding.code for record in records for finding in alerts.look(record)]


def test_every_rule_has_a_planted_fault_and_a_neighbour():
    """No rule goes without: the tables name exactly the rules that exist, and each has a cause."""
    codes = [rule.code for rule in all_rules()]

    assert codes == sorted(PLANTED) == sorted(NEIGHBOURS)
    assert set(codes) <= set(cause_names())


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_fault_is_found_once(code):
    """The rule says it, once, with evidence and what to do."""
    alerts = Alerts()
    found = [finding for record in PLANTED[code] for finding in alerts.look(record) if finding.code == code]

    assert len(found) == 1
    assert found[0].name == cause_names()[code]
    assert found[0].evidence
    assert found[0].fix is not None
    assert found[0].message.endswith(".")


@pytest.mark.parametrize(("code", "case"), [(code, case) for code, cases in NEIGHBOURS.items() for case in cases])
def test_a_healthy_neighbour_is_left_alone(code, case):
    """What looks like the fault and is none raises no alert of this rule."""
    assert code not in said(NEIGHBOURS[code][case])


def test_a_healthy_run_is_silent():
    """Two thousand healthy steps with growth probes and their skips raise nothing at all."""
    records = [skip(i, benign=True) if i % 500 == 1 else healthy(i) for i in range(2000)]

    assert said(records) == []


@pytest.mark.parametrize(
    "records",
    [[skip(i, loss=NAN) for i in range(4)], [healthy(0), skip(1, loss=NAN)], [skip(0, loss=NAN), healthy(1, loss=NAN)]],
    ids=["it stays so", "after a step that was applied", "it is applied"],
)
def test_a_bad_loss_at_the_start_is_said_once_the_scale_does_not_explain_it(records):
    """The last record is the one that is said."""
    found = [[f.code for f in findings] for alerts in [Alerts()] for findings in map(alerts.look, records)]

    assert ["MP133" in codes for codes in found] == [*[False] * (len(records) - 1), True]


def test_what_goes_on_is_said_ever_less():
    """A fault in 30,000 steps in a row is said at 0, after 1000 steps, after 4000 more, after 16,000 more."""
    alerts = Alerts()
    steps = [step for step in range(30_000) if any(f.code == "MP133" for f in alerts.look(healthy(step, loss=NAN)))]

    assert steps == [0, 1000, 5000, 21000]


def test_another_training_begins_afresh():
    """Records of an optimizer that was never seen before are not compared with those of the last training."""
    first = norms([1.0] * 60)
    second = [replace(healthy(60 + i, grad_norm=50.0, loss=9.0), optimizers=("optimizer1",)) for i in range(10)]

    assert "MP039" not in said([*first, *second])
    assert "MP039" in said([*first, *(replace(record, optimizers=()) for record in second)])


def test_the_innermost_module_is_named():
    """Of modules that all returned infinity the first that contains no other is to blame."""
    bad = ModuleRecord("fp16", -1.0, INF, -INF)
    record = replace(healthy(5), modules={"(model)": bad, "blocks": bad, "blocks.0": bad, "head": bad})

    (finding,) = [f for f in Alerts().look(record) if f.code == "MP030"]
    assert finding.location.module == "blocks.0"
