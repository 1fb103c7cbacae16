"""The op where numbers went wrong, as the location arm singled it out, with what it was given.

Judges of causes in forward and backward all look at the same op and ask it different questions. An overflow in
backward that a smaller scale would have avoided is the scale's affair and nobody's fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mixprec.doctor._arm import Arm, Examination, TracedOp
from mixprec.doctor.judges._reading import LOW, failure, sound
from mixprec.records import Confidence, Evidence, OpRecord, TensorStats

__all__ = [
    "ACCUSED_OP",
    "DIVISIONS",
    "MATMULS",
    "REDUCTIONS",
    "Fault",
    "confidence_of_fault",
    "culprit",
    "culprit_of",
    "faults",
    "fp32_fails",
    "packet",
    "scaled_overflow",
    "traced",
]

MATMULS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "addmv", "dot", "convolution", "_convolution", "addmm_"}
    | {"mkldnn_convolution", "mkldnn_linear", "mkldnn_rnn_layer", "addbmm", "einsum", "conv2d", "conv1d", "conv3d"}
)
REDUCTIONS = frozenset(
    {"sum", "mean", "cumsum", "prod", "norm", "linalg_vector_norm", "var", "std", "var_mean", "std_mean", "nansum"}
    | {"logsumexp", "cumprod", "trace", "native_layer_norm", "native_group_norm", "_fused_rms_norm"}
)
DIVISIONS = frozenset({"div", "div_", "true_divide", "reciprocal", "rsqrt", "divide", "rsqrt_", "reciprocal_"})
ACCUSED_OP = "first op that went wrong"
"""What evidence says before it names the accused op."""
ACCUSED = ("first_inf", "first_nan", "given")


@dataclass(frozen=True)
class Fault:
    """One accused op: its role, the text and constants of its line, and the ops that wrote its operands."""

    traced: TracedOp
    arm: Arm
    sources: tuple[TracedOp, ...] = ()

    @property
    def op(self) -> OpRecord:
        return self.traced.op

    @property
    def role(self) -> str:
        return self.traced.role

    @property
    def iteration(self) -> int:
        return self.traced.iteration

    @property
    def packet(self) -> str:
        return packet(self.op)

    def of_step(self, other: Fault) -> bool:
        """Whether both ran in one iteration of one rank of one arm."""
        mine, its = ((one.arm.name, one.iteration, one.traced.rank) for one in (self, other))
        return mine == its

    @property
    def backward(self) -> bool:
        return self.op.phase == "backward"

    @property
    def dtype(self) -> str:
        """The dtype of what it wrote."""
        return self.op.outputs[0].dtype if self.op.outputs else ""

    @property
    def low(self) -> bool:
        return self.dtype in LOW or any(stats.dtype in LOW for stats in self.op.inputs)

    @property
    def denominator(self) -> TensorStats | None:
        """What a division divides by."""
        if self.packet not in DIVISIONS or not self.op.inputs:
            return None
        return (
            self.op.inputs[1]
            if self.packet.startswith(("div", "true")) and len(self.op.inputs) > 1
            else self.op.inputs[0]
        )

    def constants(self) -> list[float]:
        """Numbers on its line, among its arguments and those of the ops before it."""
        found = list(self.traced.constants)
        for one in (self.traced, *self.sources):
            found += [float(v) for _, v in one.op.scalars if isinstance(v, (int, float)) and not isinstance(v, bool)]
            found += one.constants
        return [value for value in found if math.isfinite(value)]

    def evidence(self) -> list[Evidence]:
        """What it was given and gave."""
        at = {"arm": self.arm.name, "step": self.iteration}
        place = f"{self.op.op} in {self.op.phase}" + (
            f" of {self.op.location.module}" if self.op.location.module else ""
        )
        found = [Evidence(ACCUSED_OP, place, **at)]  # type: ignore[arg-type] # a str and an int
        for name, stats in zip(self.op.names, self.op.inputs, strict=False):
            found.append(Evidence(f"largest magnitude of {name} ({stats.dtype})", stats.amax, **at))  # type: ignore[arg-type] # as above
        for stats in self.op.outputs[:1]:
            found.append(Evidence("infinite elements of the result", stats.infs, **at))  # type: ignore[arg-type] # as above
            found.append(Evidence("NaN elements of the result", stats.nans, **at))  # type: ignore[arg-type] # as above
        for stats in self.op.exact[:1]:
            if stats.finite:
                found.append(Evidence("largest magnitude of the result in FP32", stats.amax, **at))  # type: ignore[arg-type] # as above
        return found


def packet(op: OpRecord) -> str:
    """The op's name without namespace and overload."""
    parts = op.op.split(".")
    return parts[1] if len(parts) > 1 else op.op


def traced(examination: Examination, *roles: str) -> Iterator[tuple[Arm, TracedOp]]:
    """Every op that an arm singled out in one of these roles; of any role without names. Arms in FP32 do not count."""
    for arm in examination.arms:
        if arm.changes("precision") == "fp32" or arm.changes("explicit") == "fp32":
            continue
        for one in arm.ops:
            if not roles or one.role in roles:
                yield arm, one


def faults(examination: Examination) -> list[Fault]:
    """The accused ops of every location arm, in the order in which they ran."""
    found = []
    for arm, one in traced(examination, *ACCUSED, "nan_from_inf"):
        sources = tuple(
            s
            for s in arm.ops
            if s.role == "source"
            and s.iteration == one.iteration
            and s.rank == one.rank
            and s.op.index in one.op.sources
        )
        found.append(Fault(one, arm, sources))
    return sorted(found, key=lambda fault: (fault.iteration, fault.op.index))


def culprit(examination: Examination) -> Fault | None:
    """The first accused op that no smaller scale would have saved; else the first of all."""
    return culprit_of(faults(examination))


def culprit_of(found: list[Fault]) -> Fault | None:
    """The same of a list."""
    accused = [fault for fault in found if fault.role in ACCUSED] or found
    return next((fault for fault in accused if not scaled_overflow(fault)), accused[0] if accused else None)


def scaled_overflow(fault: Fault) -> bool:
    """Whether it is an FP16 overflow in backward that only the loss scale made: nothing was divided by."""
    if not fault.backward or fault.dtype != "float16" or fault.packet in DIVISIONS or fault.packet == "pow":
        return False
    return bool(fault.op.exact) and all(stats.finite for stats in fault.op.exact)


def fp32_fails(examination: Examination) -> bool | None:
    """Whether the FP32 control fails by itself; None if there is none."""
    control = examination.arm("fp32")
    if control is None:
        return None
    found = failure(control)
    if found is None:
        return False if sound(control) else None
    return not (found.how == "raised" and not control.steps)


def confidence_of_fault(examination: Examination) -> tuple[Confidence, list[Evidence]]:
    """How far a cause that needs 16 bits was tested, and what the controls rule out."""
    ruled_out: list[Evidence] = []
    for name, what in (
        ("fp32", "data, learning rate and model: the FP32 control"),
        ("bf16", "mantissa: the bfloat16 control"),
    ):
        arm = examination.arm(name)
        if sound(arm):
            ruled_out.append(Evidence(what, "is healthy", arm=name))
    fixed = examination.arm("scale-1")
    if fixed is not None and failure(fixed) is not None:
        ruled_out.append(Evidence("the loss scale: the run at scale 1", "fails as well", arm="scale-1"))
    control = examination.arm("fp32")
    if control is None:
        return Confidence.CONSISTENT, ruled_out
    return (Confidence.CONFIRMED if sound(control) else Confidence.CONSISTENT), ruled_out
