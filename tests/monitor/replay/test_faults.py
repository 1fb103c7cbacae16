"""Faults of forward, backward and optimizer in whole scripts: the step is kept, runs again bit for bit, and its line is
named; beside each, the same script without the fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mixprec._trace import source_line
from mixprec.cli import main

CASES = Path(__file__).parents[2] / "doctor" / "cases"

FAULTS = (
    "mp009_noise_after_unscale",
    "mp012_forward_inf_collapse",
    "mp027_vector_loss",
    "mp030_hidden_overflow",
    "mp032_energy_sum",
    "mp033_scores_not_scaled",
    "mp034_head_overflow",
    "mp035_temperature",
    "mp036_metric_units",
    "mp042_added_mask",
    "mp042_stretched_mask",
    "mp043_empty_row",
    "mp044_two_masks",
    "mp045_distance_at_zero",
    "mp046_where_trap",
    "mp047_entropy",
    "mp048_standardise",
    "mp050_angle",
    "mp051_inf_times_zero",
    "mp052_no_positives",
    "mp063_half_adam",
    "mp067_variance",
    "mp131_bad_sample",
    "mp131_infinite_target",
    "mp135_weights_edited",
    "mp136_bad_checkpoint",
    "mp141_rsqrt_of_tiny",
)


def marked(script):
    """Lines that may be accused."""
    return [n for n, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1) if line.endswith("# FAULT")]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_kept_replayed_and_named(name, in_process):
    """The first failing step is kept, runs again bit for bit, and the op at fault is on a marked line."""
    script = CASES / name / "bad.py"
    [incident] = in_process.record(script, most=1)
    found = in_process.replay(incident, script)

    assert (found.repeats, found.exact) == (True, True)
    assert found.traced.origin.first.location.line in marked(script)
    assert found.headline.startswith(f"{script}:{found.traced.origin.first.location.line}")


@pytest.mark.parametrize("name", FAULTS)
def test_its_neighbour_without_the_fault_leaves_nothing(name, in_process):
    """No loss of it is bad, and no step is kept but those that the search for a loss scale skips."""
    incidents = in_process.record(CASES / name / "good.py")

    assert all(one.kind == "skipped" and all(loss == loss for loss in one.losses) for one in incidents)


def test_where_gradients_drown_is_named(in_process):
    """Underflow fails no step: the alert keeps one, which runs again bit for bit and shows where most was lost."""
    script = CASES / "mp060_scale_too_low" / "bad.py"
    [incident] = in_process.watch(script)
    found = in_process.replay(incident, script)

    assert (incident.kind, found.repeats, found.exact, found.healthy) == ("underflow", True, True, True)
    lost = found.most_lost
    assert lost.zeroed + lost.subnormal > 0.5
    assert lost.keeping_scale > 1.0
    assert "became 0" in found.headline
    with in_process.instead_of_processes():
        shown = CliRunner().invoke(main, ["replay", str(incident.folder), str(script)])
    assert shown.exit_code == 0, shown.output
    assert found.headline in shown.output
    assert "kept by a scale of" in shown.output


def test_weights_that_went_bad_long_before_lead_to_the_step_that_spoiled_them(in_process):
    """A NaN that is replaced fails no step but spoils weights: an alert keeps one, and the step that did it is told."""
    script = CASES / "mp134_nan_hidden" / "bad.py"
    [incident] = in_process.watch(script)
    found = in_process.replay(incident, script)

    assert (incident.kind, found.repeats, found.exact) == ("weights", True, True)
    assert "(h - h.detach()).sum()" in source_line(found.traced.origin.first.location)
    assert any("weights or buffers were bad" in note for note in found.notes)
