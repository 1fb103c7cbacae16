"""A configuration is accepted whole or refused with the name of the key."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec import Precision
from mixprec.errors import InvalidValueError, UnknownNameError


def make(config):
    return Precision.from_config(config, torch.optim.SGD(nn.Linear(2, 1).parameters(), 0.1))


def test_every_key_reaches_the_front_door():
    """A full configuration gives what the same arguments give."""
    precision = make(
        {
            "mode": "fp16-mixed",
            "device": "cpu",
            "max_norm": 1,
            "accumulate": 4,
            "policy": "lean",
            "scaler": {"init_scale": 256.0, "growth_interval": 10, "min_scale": 2.0, "floor_patience": None},
        }
    )
    assert precision.mode == "fp16-mixed"
    assert (precision.max_norm, precision.policy) == (1, "lean")
    assert precision.scaler.get_scale() == 256.0
    assert precision.scaler.get_growth_interval() == 10
    assert precision.autocast().fast_dtype is torch.float16


def test_a_scaler_for_inference_is_refused():
    """Without an optimizer there is nothing to scale; the same configuration trains with one."""
    config = {"mode": "fp16-mixed", "scaler": {"init_scale": 256.0}}
    with pytest.raises(InvalidValueError, match="scaler is 'GradScaler'; accepted is None without an optimizer"):
        Precision.from_config(config)
    assert make(config).scaler.get_scale() == 256.0


def test_an_empty_configuration_is_the_default():
    """Nothing set is "auto" without clipping or accumulation."""
    assert make({}).mode == Precision("auto", torch.optim.SGD(nn.Linear(2, 1).parameters(), 0.1)).mode


@pytest.mark.parametrize(
    ("refused", "accepted", "error", "text"),
    [
        (None, {}, InvalidValueError, "config is None; accepted is a mapping with the keys mode, device, max_norm"),
        ({"accumulation": 4}, {"accumulate": 4}, UnknownNameError, r"key is 'accumulation'.*did you mean 'accumulate'"),
        ({"accumulate": "4"}, {"accumulate": 4}, InvalidValueError, "accumulate is '4'; accepted is a whole number"),
        ({"max_norm": "1"}, {"max_norm": 1}, InvalidValueError, "max_norm is '1'; accepted is None or a positive"),
        ({"mode": 16}, {"mode": "fp32"}, InvalidValueError, "mode is 16; accepted is text"),
        ({"mode": "bf16"}, {"mode": "bf16-mixed"}, UnknownNameError, "mode is 'bf16'; accepted is one of .*bf16-mixed"),
        ({"policy": 1, "mode": "bf16-mixed"}, {"policy": None}, InvalidValueError, "policy is 1; accepted is text"),
        (
            {"device": "gpu"},
            {"device": "cpu"},
            InvalidValueError,
            "device is 'gpu'; accepted is a type that PyTorch knows",
        ),
        (
            {"mode": "fp16-mixed", "device": "cuda:99"},
            {"mode": "fp16-mixed", "device": "cpu"},
            InvalidValueError,
            "device is 'cuda:99'; accepted is a device of this machine",
        ),
        (
            {"mode": "fp16-mixed", "scaler": False},
            {"mode": "fp16-mixed", "scaler": None},
            InvalidValueError,
            "scaler is False; accepted is a mapping",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"init_scale": "1e5"}},
            {"mode": "fp16-mixed", "scaler": {"init_scale": 1.0e5}},
            InvalidValueError,
            r"scaler.init_scale is '1e5'; accepted is a number\. It is text: .* 1\.0e\+5",
        ),
        (
            {"mode": "fp16-mixed", "scaler": 65536},
            {"mode": "fp16-mixed", "scaler": {}},
            InvalidValueError,
            "scaler is 65536; accepted is a mapping with the keys init_scale",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"growth": 2}},
            {"mode": "fp16-mixed", "scaler": {"growth_factor": 2}},
            UnknownNameError,
            "key is 'scaler.growth'.*did you mean 'scaler.growth_factor'",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"growth_factor": 1.0}},
            {"mode": "fp16-mixed", "scaler": {"growth_factor": 1.5}},
            InvalidValueError,
            "scaler.growth_factor is 1.0; accepted is a number above 1",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"backoff_factor": 1.0}},
            {"mode": "fp16-mixed", "scaler": {"backoff_factor": 0.9}},
            InvalidValueError,
            "scaler.backoff_factor is 1.0; accepted is a number above 0 and below 1",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"init_scale": "2**16"}},
            {"mode": "fp16-mixed", "scaler": {"init_scale": 2.0**16}},
            InvalidValueError,
            r"scaler.init_scale is '2\*\*16'; accepted is a number",
        ),
        (
            {"mode": "fp16-mixed", "scaler": {"growth_interval": 0}},
            {"mode": "fp16-mixed", "scaler": {"growth_interval": 1}},
            InvalidValueError,
            "scaler.growth_interval is 0",
        ),
        (
            {"mode": "bf16-mixed", "scaler": {}},
            {"mode": "bf16-mixed", "scaler": None},
            InvalidValueError,
            "scaler is 'GradScaler'; accepted is None in mode 'bf16-mixed'",
        ),
    ],
)
def test_the_error_names_the_key(refused, accepted, error, text):
    """Each refused setting stands next to an accepted one."""
    with pytest.raises(error, match=text):
        make(refused)
    make(accepted)
