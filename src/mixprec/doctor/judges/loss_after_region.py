"""MP169: a loss of FP16 outputs is taken after the region has ended, where autocast no longer makes it FP32."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, confidence_of_fault, faults
from mixprec.doctor.judges._reading import low_regions, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict

LOSSES = frozenset(
    {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "kl_div", "cdist"}
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "poisson_nll_loss", "gaussian_nll_loss"}
    | {"cosine_similarity"}
)


def judge(examination: Examination) -> Verdict | None:
    """The first op at fault is part of a loss function, reads FP16 and is outside every region; there are some."""
    arm = observed(examination)
    if arm is None or not low_regions(arm, "float16"):
        return None
    fault = next((one for one in faults(examination) if _is_late_loss(one)), None)
    if fault is None:
        return None
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        "MP169",
        "The loss is taken of FP16 outputs after the region has ended, and overflows there.",
        fault.op.location,
        evidence=fault.evidence(),
        confidence=confidence,
        ruled_out=ruled_out,
    )


def _is_late_loss(fault: Fault) -> bool:
    return fault.op.call in LOSSES and fault.op.autocast is None and fault.low and fault.op.phase == "forward"
