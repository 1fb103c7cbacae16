"""MP030 to MP037 and MP040: an activation leaves the range of FP16; which kind of op it was says what to do.

The op had finite operands, and float32 arithmetic on them gives a finite result beyond 65504.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._located import (
    MATMULS,
    REDUCTIONS,
    Fault,
    confidence_of_fault,
    culprit,
    faults,
    packet,
    traced,
)
from mixprec.doctor.judges._masks import constant_that_overflows, masks_that_meet
from mixprec.doctor.judges._reading import learns_less, observed
from mixprec.doctor.judges._say import say
from mixprec.doctor.judges.divergence import diverges
from mixprec.records import Verdict

EXPONENTIALS = frozenset({"exp", "exp2", "expm1", "cosh", "sinh", "exp_"})
PRODUCTS = frozenset({"pow", "mul", "square", "mul_", "pow_", "addcmul", "mse_loss", "huber_loss", "smooth_l1_loss"})
SUMS = frozenset({"add", "add_", "sub", "sub_"})
CLASSIFYING = frozenset({"_log_softmax", "binary_cross_entropy_with_logits", "multi_margin_loss"})
"""Ops of losses that read logits."""
WORDS = {
    "MP030": "The output of this layer is beyond 65504, the largest FP16 number.",
    "MP031": "This product or square is beyond 65504: its FP16 operands are above 256.",
    "MP032": "This sum or mean of many FP16 values is beyond 65504.",
    "MP033": "Attention scores are beyond 65504: queries and keys are multiplied before they are scaled down.",
    "MP034": "The logits of the last layer are beyond 65504.",
    "MP035": "exp() of an FP16 number above 11.09 is infinite.",
    "MP036": "The inputs are so large that FP16 cannot hold what the first layers make of them.",
    "MP040": "The residual stream has grown beyond 65504.",
}


def judge(examination: Examination) -> Verdict | None:
    """The first op in forward whose FP16 result is infinite where FP32 is not."""
    fault = _overflow(examination)
    control = examination.arm("fp32")
    if fault is None or (control is not None and any(diverges(control, o.optimizer) for o in control.optimizers)):
        return None  # what explodes in FP32 as well overflows in FP16 first
    code = _kind(examination, fault)
    confidence, ruled_out = confidence_of_fault(examination)
    return say(
        code,
        WORDS[code],
        fault.op.location,
        evidence=fault.evidence(),
        confidence=confidence,
        ruled_out=ruled_out,
    )


def _overflow(examination: Examination) -> Fault | None:
    fault = culprit(examination)
    if fault is None or not _overflows(fault):
        hidden = [Fault(one, arm) for arm, one in traced(examination, "hidden")]
        fault = next((one for one in hidden if _overflows(one) and one.packet in PRODUCTS | REDUCTIONS | MATMULS), None)
        if fault is None and learns_less(examination) is not None:  # a hook divides by it: 0, and nobody sees an Inf
            fault = next((one for one in hidden if _overflows(one, "backward") and one.packet in REDUCTIONS), None)
    return fault


def _overflows(fault: Fault, *phases: str) -> bool:
    if fault.op.phase not in (phases or ("forward", "recompute")) or fault.dtype != "float16" or fault.role == "given":
        return False
    if not all(stats.finite for stats in fault.op.inputs) or not any(stats.infs for stats in fault.op.outputs):
        return False
    if constant_that_overflows(fault) or masks_that_meet(fault) or _zero_divided(fault):
        return False
    return fault.packet in EXPONENTIALS or not fault.op.exact or fault.op.exact[0].finite


def _zero_divided(fault: Fault) -> bool:
    return fault.denominator is not None or fault.packet.startswith("log")


def _kind(examination: Examination, fault: Fault) -> str:
    arm = observed(examination)
    if fault.packet in EXPONENTIALS:
        return "MP035"
    if fault.packet in MATMULS:
        return _matmul(examination, arm, fault)
    if fault.op.cast or fault.packet in ("_to_copy", "copy_"):
        return "MP036" if _is_input(arm, fault) else "MP030"
    if fault.packet in REDUCTIONS:
        return "MP032"
    if fault.packet in PRODUCTS:
        return "MP031"
    return "MP040" if fault.packet in SUMS else "MP030"


def _matmul(examination: Examination, arm: Arm | None, fault: Fault) -> str:
    if _is_input(arm, fault):
        return "MP036"
    if _feeds_softmax(examination, fault):
        return "MP033"
    head = (arm is not None and _is_head(arm, fault)) or _gives_the_logits(examination, fault)
    return "MP034" if head else "MP030"


def _feeds_softmax(examination: Examination, fault: Fault) -> bool:
    """Whether two activations are multiplied and the first op to make NaN of it is a softmax."""
    if fault.packet not in ("bmm", "baddbmm", "matmul"):
        return False
    later = [one for one in faults(examination) if one.op.index > fault.op.index and one.iteration == fault.iteration]
    return any("softmax" in packet(one.op) for one in later) or "scores" in fault.traced.source


def _is_input(arm: Arm | None, fault: Fault) -> bool:
    """Whether the op reads the batch itself, and the batch is large."""
    if arm is None:
        return False
    own = [step.batch_amax for step in arm.steps if step.iteration == fault.iteration and step.batch_amax]
    amax = max(own or [step.batch_amax or 0.0 for step in arm.steps[:20]], default=0.0)
    roots = max((m.input_amax or 0.0 for m in arm.modules[:4]), default=0.0) if not arm.steps else 0.0
    read = max((stats.amax for stats in fault.op.inputs), default=0.0)
    large = max(amax, roots)
    return large >= 100.0 and read >= 0.5 * large and (fault.op.cast or _in_first_module(arm, fault))


def _in_first_module(arm: Arm, fault: Fault) -> bool:
    first = next((m.path for m in arm.modules if m.calls and m.kind not in ("Flatten", "Dropout", "Identity")), None)
    return fault.op.location.module in (first, None)


def _is_head(arm: Arm, fault: Fault) -> bool:
    """Whether the op is in the last layer with weights, and there are others before it."""
    layers = [m.path for m in arm.modules if m.kind.startswith(("Linear", "Conv", "LazyLinear"))]
    return len(layers) > 2 and fault.op.location.module == layers[-1]


def _gives_the_logits(examination: Examination, fault: Fault) -> bool:
    """Whether what the product wrote is what a classifying loss reads, in whatever dtype and times whatever number.

    Another product between them would have made whole rows infinite of it, or NaN before the loss does.
    """
    child = next((one for one in faults(examination) if one.role == "nan_from_inf" and one.of_step(fault)), None)
    if child is None or child.packet not in CLASSIFYING or not child.op.inputs or child.op.phase != "forward":
        return False
    made, read = fault.op.outputs[0], child.op.inputs[0]
    alike = made.numel == read.numel or (bool(read.shape) and made.shape[-1:] == read.shape[-1:])
    return alike and read.infs <= made.infs
