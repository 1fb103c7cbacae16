"""Sound scripts that look suspicious (benign skips, masks of −Inf, a perfect fit, a resume) are watched in silence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "doctor" / "cases"
HOLDS_SCALED_GRADIENTS = "healthy_scaled_penalty"
"""Its loss is infinite until the scale has come down."""

SOUND = sorted(path.parent.name for path in CASES.glob("healthy_*/good.py"))


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_script_raises_no_alert(name, in_process, caplog):
    """Over its whole run nothing is said, and no step is kept but those that a loss scaler skipped."""
    kept = in_process.watch(CASES / name / "good.py")

    assert [record.getMessage() for record in caplog.records if record.name.startswith("mixprec")] == []
    assert all(one.kind == "skipped" for one in kept)
    assert name == HOLDS_SCALED_GRADIENTS or all(math.isfinite(loss) for one in kept for loss in one.losses)
