"""Benign skips are told from failures: at the start and after a growth the scale looks for its place."""

from __future__ import annotations

import pytest

from mixprec.doctor._arm import Arm, ModuleRecord, StepRecord
from mixprec.doctor.judges._reading import failure, skips


def course(scales: list[float], skipped: str, losses: float = 1.0) -> tuple[StepRecord, ...]:
    """Steps at these scales; `x` in `skipped` is a skip."""
    return tuple(
        StepRecord(0, n, n, scaler=0, loss=losses, scale=scale, skipped=mark == "x")
        for n, (scale, mark) in enumerate(zip(scales, skipped, strict=True))
    )


def test_skips_at_the_start_are_warm_up() -> None:
    """Skips before the first applied step are counted as warm-up, and the scale that it found is known."""
    seen = skips(course([65536, 32768, 16384, 16384], "xx.."))
    assert (seen.warm_up, seen.probes, seen.others, seen.settled) == (2, 0, (), 16384)


def test_a_skip_after_a_growth_is_a_probe() -> None:
    """A skip at a scale that has just grown asks whether it fits; the same scale failing later is no probe."""
    seen = skips(course([64, 128, 64, 64, 64], ".x.x."))
    assert (seen.warm_up, seen.probes, [step.index for step in seen.others]) == (0, 1, [3])


@pytest.mark.parametrize(
    ("scales", "skipped", "how"),
    [
        ([65536, 32768, 16384, 16384], "xx..", None),
        ([64, 128, 64, 64], ".x..", None),
        ([65536, 8, 4, 4], "xx..", "scale"),
        ([512, 512, 256, 256, 128, 128], ".x.x..", "skips"),
        ([512] * 10, "x" * 10, "scale"),
    ],
    ids=["warm-up", "probe", "settled too low", "spread out", "never applied"],
)
def test_which_skips_are_a_failure(scales: list[float], skipped: str, how: str | None) -> None:
    """Warm-up and probes are none; a scale below 2^6, skips spread out and skips for ever are."""
    found = failure(Arm("observe", steps=course(scales, skipped)))
    assert (found.how if found else None) == how


def test_the_first_failure_counts() -> None:
    """Of a loss that is NaN at step 1 and a module that was bad at step 0, the module's is the failure."""
    steps = course([64, 64], "..", float("nan"))
    module = ModuleRecord("layer", "Linear", first_bad_iteration=0)
    found = failure(Arm("observe", steps=steps[1:], modules=(module,)))
    assert found is not None
    assert (found.how, found.iteration, found.detail) == ("forward", 0, "layer")


def test_no_arm_has_no_failure() -> None:
    """What was not run has not failed."""
    assert failure(None) is None
