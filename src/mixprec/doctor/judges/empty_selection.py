"""MP052: a mean or deviation over nothing, or over one element, is NaN in every dtype; a loss over nothing is Inf."""

from __future__ import annotations

from dataclasses import replace

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, culprit, fp32_fails
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Fix, Verdict

SPREADS = frozenset({"var", "std", "var_mean", "std_mean"})
LOSSES = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
MEANS = frozenset({"mean", "median", "nanmean"}) | SPREADS | LOSSES

ALIGNING = frozenset({"_ctc_loss", "_cudnn_ctc_loss", "miopen_ctc_loss"})
"""Losses that sum over alignments, of which there are none where the targets are longer than the input."""

LEAVE_OUT = "Leave such samples out of the data, or pass zero_infinity=True, which gives them no gradient."


def judge(examination: Examination) -> Verdict | None:
    """The first op at fault averages no elements, or divides a sum of nothing by a count of 0."""
    fault = culprit(examination)
    if fault is None or fault.backward or fault.role == "given" or not _empty(examination, fault):
        return None
    fails = fp32_fails(examination)
    aligning = fault.packet in ALIGNING
    size = _reduces(fault)
    counted = [] if aligning else [Evidence("elements that become one", round(size, 3), arm=fault.arm.name)]
    verdict = say(
        "MP052",
        "No alignment exists: targets, with a blank between equal ones, are longer than the input, and the loss is Inf."
        if aligning
        else "A deviation is taken of a single element, which is NaN in every dtype."
        if fault.packet in SPREADS and size
        else "A mean is taken over an empty selection, which is NaN in every dtype.",
        fault.op.location,
        evidence=[*fault.evidence(), *counted],
        confidence=Confidence.CONFIRMED if fails else Confidence.CONSISTENT,
        ruled_out=[Evidence("precision: the FP32 control", "fails as well", arm="fp32")] if fails else (),
    )
    return replace(verdict, fix=Fix(LEAVE_OUT)) if aligning else verdict


def _reduces(fault: Fault) -> float:
    """How many elements become one."""
    taken = min((stats.numel for stats in fault.op.inputs), default=0)
    made = max((stats.numel for stats in fault.op.outputs), default=1)
    return taken / max(1, made)


def _empty(examination: Examination, fault: Fault) -> bool:
    if fault.packet in ALIGNING:
        return fault.role == "first_inf" and all(stats.finite for stats in fault.op.inputs)
    if fault.packet in MEANS:
        finite = all(stats.finite for stats in fault.op.inputs)
        return finite and (_reduces(fault) <= (1 if fault.packet in SPREADS else 0) or fault.packet in LOSSES)
    below = fault.denominator
    if below is None or not below.zeros or fp32_fails(examination) is False or len(fault.op.inputs) < 2:
        return False
    above = fault.op.inputs[0]
    return fault.role == "first_nan" and above.numel == 1 and above.zeros == 1
