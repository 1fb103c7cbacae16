"""What another precision would take is predicted from a record within 5 % of what it takes when it is run."""

from __future__ import annotations

import pytest

from mixprec._policy import Policy
from mixprec.audit._memory import memory_of, saved_bytes
from mixprec.audit._simulate import each_precision, simulate

MODES = ("fp32", "fp16-mixed", "bf16-mixed", "fp16-master", "bf16-master")
LOWBIT = ("bf16 + Kahan summation", "bf16 + stochastic rounding")


def predicted(step, name):
    (row,) = [p for p in each_precision() if p.name == name]
    return simulate(step, row, Policy.torch("cpu"))


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
@pytest.mark.parametrize("seen", ["fp32", "bf16-mixed"])
@pytest.mark.parametrize("mode", [*MODES, *LOWBIT])
def test_forecast_is_within_five_per_cent(watched, name, seen, mode):
    """Saved bytes, what is held after forward, and the peak: predicted from a step in one precision, run in another."""
    forecast = predicted(watched(name, seen), mode)
    measured = memory_of(watched(name, mode))

    assert forecast.saved == pytest.approx(saved_bytes(watched(name, mode)), rel=0.05)
    assert forecast.after_forward == pytest.approx(measured.after_forward, rel=0.05)
    assert forecast.peak == pytest.approx(measured.peak, rel=0.05)


@pytest.mark.parametrize("mode", ["bf16-mixed", "bf16-master"])
def test_recurrent_layers_are_forecast_from_their_own_dtype(watched, mode):
    """oneDNN's workspace is opaque, so an LSTM is forecast from a step in the same compute dtype only."""
    forecast = predicted(watched("lstm", "bf16-mixed"), mode)
    measured = memory_of(watched("lstm", mode))

    assert forecast.after_forward == pytest.approx(measured.after_forward, rel=0.05)
    assert forecast.peak == pytest.approx(measured.peak, rel=0.06)


def test_state_of_an_eight_bit_optimizer(watched):
    """One byte per element and four per block of 256, but float32 for weights below 4,096 elements."""
    step = watched("mlp", "fp32")
    large = 64 * 512 + 512 * 10
    small = 512 + 512 + 512 + 10

    forecast = predicted(step, "bf16-mixed + 8-bit optimizer")

    assert forecast.state == pytest.approx(2 * large * (1 + 4 / 256) + 2 * small * 4, abs=64)


def test_the_table_has_every_way_to_train(watched):
    """The rows are named as the modes of Precision, and as the three ways to do with less state."""
    from mixprec.audit._forecast import forecasts_of

    rows = [row.precision for row in forecasts_of(watched("mlp", "fp32"), Policy.torch("cpu"))]

    assert sorted(rows) == sorted([*MODES, *LOWBIT, "bf16-mixed + 8-bit optimizer"])
