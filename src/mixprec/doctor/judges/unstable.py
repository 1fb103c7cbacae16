"""MP039: activations grow step by step until FP16 ends, and go on growing in FP32 while the loss does not improve."""

from __future__ import annotations

import itertools
import statistics

from mixprec.doctor._arm import Arm, Examination, ModuleRecord
from mixprec.doctor.judges._located import Fault, culprit, scaled_overflow
from mixprec.doctor.judges._reading import losses, median, observed
from mixprec.doctor.judges._say import say
from mixprec.doctor.judges.divergence import diverges
from mixprec.records import Confidence, Evidence, Verdict

LATE = 12
"""Iterations before the overflow that make it a growth and not a magnitude that was there from the start."""
GROWTH = 8.0
"""Times its first magnitude that an activation reaches."""
PARTS = 4
"""Of as many parts of the run each has a larger median than the one before."""


def judge(examination: Examination) -> Verdict | None:
    """A late FP16 overflow in forward, of a module whose output grows in both arms; FP32 does not learn from it."""
    arm, control, fault = observed(examination), examination.arm("fp32"), culprit(examination)
    if arm is None or control is None or fault is None or not _overflows_late(fault):
        return None
    if _learns(control) or any(diverges(control, o.optimizer) for o in control.optimizers):
        return None
    exact = {(module.path, module.kind): module for module in control.modules}
    pairs = [(m, exact[m.path, m.kind]) for m in arm.modules if (m.path, m.kind) in exact]
    grown = [(here, there) for here, there in pairs if _grows(here) and _grows(there)]
    return _say(arm, control, fault, *max(grown, key=lambda pair: _factor(pair[1]))) if grown else None


def _overflows_late(fault: Fault) -> bool:
    infinite = any(stats.infs for stats in fault.op.outputs) and all(stats.finite for stats in fault.op.inputs)
    return fault.iteration >= LATE and infinite and fault.dtype == "float16" and not scaled_overflow(fault)


def _learns(control: Arm) -> bool:
    """Whether the last quarter of the losses is well below the first, of a loss that has a lower end."""
    for optimizer in control.optimizers:
        known = losses(control, optimizer.optimizer)
        quarter = max(1, len(known) // 4)
        first, last = median(known[:quarter]), median(known[-quarter:])
        if first is not None and last is not None and 0 < last < 0.5 * first:
            return True
    return False


def _grows(module: ModuleRecord) -> bool:
    seen = module.amax_by_iteration
    size = len(seen) // PARTS
    medians = [statistics.median(seen[n * size : (n + 1) * size]) for n in range(PARTS)] if size else []
    rises = all(after > before for before, after in itertools.pairwise(medians))
    return size >= 2 and rises and _factor(module) >= GROWTH


def _factor(module: ModuleRecord) -> float:
    seen = [amax for amax in module.amax_by_iteration if amax > 0]
    return seen[-1] / seen[0] if seen else 0.0


def _say(arm: Arm, control: Arm, fault: Fault, here: ModuleRecord, there: ModuleRecord) -> Verdict:
    name = here.path or here.kind
    return say(
        "MP039",
        f"Outputs of {name} grow step by step until FP16 ends, and in FP32 they grow on, {_factor(there):.3g} times.",
        fault.op.location,
        evidence=(
            Evidence(f"largest output of {name} at first", here.amax_by_iteration[0], arm=arm.name),
            Evidence("the same before it overflowed", here.amax_by_iteration[-1], arm=arm.name, step=fault.iteration),
            Evidence("the same at the end of the FP32 control", there.amax_by_iteration[-1], arm=control.name),
            *fault.evidence(),
        ),
        confidence=Confidence.CONFIRMED,
    )
