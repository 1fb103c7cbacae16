"""MP084: weights are FP16 and a scaler is on; PyTorch raises, unless the optimizer is fused."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._crash import crash_says, described, here
from mixprec.doctor.judges._reading import observed, optimizer_of, site_of_conversion
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Confidence, Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """The line that unscales is innocent: what is at fault made the weights FP16."""
    found = crash_says(examination, r"Attempting to unscale FP16 gradients", r"float16 gradients")
    if found is not None:
        arm, crash = found
        return say(
            "MP084",
            "The weights are FP16, so their gradients cannot be unscaled: train FP32 weights under autocast instead.",
            site_of_conversion(arm, "float16") or _owner(arm) or here(crash),
            evidence=(described(crash, arm),),
            confidence=Confidence.CONFIRMED,
        )
    return _silent(examination)


def _owner(arm: Arm) -> Location | None:
    """The optimizer that was given FP16 parameters, where no conversion made them."""
    return next((one.site for one in arm.optimizers if one.parameter_dtypes.get("float16")), None)


def _silent(examination: Examination) -> Verdict | None:
    arm = observed(examination)
    if arm is None:
        return None
    for step in arm.steps:
        optimizer = optimizer_of(arm, step.optimizer, step.rank)
        if step.scaler is None or optimizer is None or not optimizer.parameter_dtypes.get("float16"):
            continue
        return say(
            "MP084",
            "FP16 weights are trained with a scaler; the fused optimizer hides that PyTorch forbids it.",
            site_of_conversion(arm, "float16") or optimizer.site,
            evidence=(
                Evidence("FP16 elements of the optimizer", optimizer.parameter_dtypes["float16"], arm=arm.name),
                Evidence("fused optimizer", optimizer.fused, arm=arm.name),
            ),
            confidence=confidence_of_protocol(examination, "MP084"),
        )
    return None
