"""Rows are compared with what the systems' own code did (`frozen/*.json`), where the systems are not installed too.

Each file says in its `provenance` which source, version and function produced it, and what had to be replaced to run
it on CPU; `tests/peers/freeze.py` is the program that did it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mixprec import presets
from mixprec._loss_scale import Refill, Rules, advance, initial
from mixprec.errors import LossScaleFloorError

FROZEN = Path(__file__).parent / "frozen"


def apex(p: dict[str, Any]) -> Rules:
    return replace(
        presets.APEX.rules,
        init_scale=min(p["max_loss_scale"], p["init_scale"]),
        growth_interval=p["scale_window"],
        min_scale=p["min_loss_scale"] or 0.0,
        max_scale=p["max_loss_scale"],
    )


def megatron(p: dict[str, Any]) -> Rules:
    return replace(presets.MEGATRON.rules, init_scale=p["initial_scale"], **{k: p[k] for k in p if k[0] != "i"})


def paddle(p: dict[str, Any]) -> Rules:
    return replace(
        presets.PADDLE.rules,
        init_scale=p["init_loss_scaling"],
        growth_factor=p["incr_ratio"],
        backoff_factor=p["decr_ratio"],
        growth_interval=p["incr_every_n_steps"],
        hysteresis=p["decr_every_n_nan_or_inf"],
    )


def flax(p: dict[str, Any]) -> Rules:
    return replace(
        presets.FLAX.rules,
        init_scale=p["scale"],
        growth_factor=p["growth_factor"],
        backoff_factor=p["backoff_factor"],
        growth_interval=p["growth_interval"] + 1,
        min_scale=p.get("minimum_scale", presets.FLAX.rules.min_scale),
    )


def keras(p: dict[str, Any]) -> Rules:
    return replace(presets.KERAS.rules, init_scale=p["initial_scale"], growth_interval=p["dynamic_growth_steps"])


def deepspeed_zero(p: dict[str, Any]) -> Rules:
    return replace(
        presets.DEEPSPEED_ZERO.rules,
        init_scale=p["init_scale"],
        growth_interval=p["scale_window"],
        min_scale=p["min_scale"],
        hysteresis=p["delayed_shift"],
        refill=Refill.AT_CLEAN_STEP if p["consecutive_hysteresis"] else Refill.AT_GROWTH,
    )


def deepspeed_fp16(p: dict[str, Any]) -> Rules:
    return replace(
        presets.DEEPSPEED_FP16.rules,
        init_scale=p["init_scale"],
        growth_interval=p["scale_window"],
        min_scale=p["min_scale"],
    )


RULES = {
    "apex": apex,
    "megatron": megatron,
    "paddle": paddle,
    "flax": flax,
    "keras": keras,
    "deepspeed-zero": deepspeed_zero,
    "deepspeed-fp16": deepspeed_fp16,
}


def cases() -> list[Any]:
    loaded = {system: json.loads((FROZEN / f"{system}.json").read_text())["cases"] for system in RULES}
    return [pytest.param(system, case, id=f"{system}-{n}") for system in RULES for n, case in enumerate(loaded[system])]


def scale_changes(rules: Rules, steps: int, overflows: set[int]) -> list[list[float | None]]:
    state, before, changes = initial(rules), None, []
    for step in range(steps):
        try:
            state, _ = advance(rules, state, step in overflows)
        except LossScaleFloorError:
            return [*changes, [step, None]]
        if state.scale != before:
            changes.append([step, state.scale])
        before = state.scale
    return changes


@pytest.mark.parametrize(("system", "case"), cases())
def test_row_does_what_the_system_did(system: str, case: dict[str, Any]) -> None:
    """The row, with the system's parameters in its fields, gives every scale that the system's own code gave."""
    rules = RULES[system](case["parameters"])
    assert scale_changes(rules, case["steps"], set(case["overflows"])) == case["changes"]


@pytest.mark.parametrize("system", RULES)
def test_the_first_frozen_parameters_are_the_rows_own(system: str) -> None:
    """What is frozen first are the system's defaults, and the row holds exactly those."""
    first = json.loads((FROZEN / f"{system}.json").read_text())["cases"][0]
    assert RULES[system](first["parameters"]) == presets.get(system).rules


@pytest.mark.parametrize("system", RULES)
def test_frozen_streams_reach_growth_and_back_off(system: str) -> None:
    """The recorded streams make the scale rise and fall, and the defaults are run past their growth interval."""
    cases = json.loads((FROZEN / f"{system}.json").read_text())["cases"]
    scales = [[scale for _, scale in case["changes"] if scale is not None] for case in cases]
    assert any(b > a for run in scales[:4] for a, b in itertools.pairwise(run))
    assert any(b < a for run in scales for a, b in itertools.pairwise(run))
