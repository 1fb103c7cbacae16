"""From a recorded step to a report: every part is computed from the same events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mixprec._hardware import Accelerator, Traits, accelerator_named, accelerator_of
from mixprec._policy import Policy
from mixprec.audit._bound import bound_of
from mixprec.audit._casts import casts_of
from mixprec.audit._clocks import clocks_of
from mixprec.audit._flags import Flags
from mixprec.audit._forecast import forecasts_of
from mixprec.audit._log import Kind, Phase, Step
from mixprec.audit._memory import main_device, memory_of
from mixprec.audit._ops import op_rows, promotions_of
from mixprec.audit._products import Products, products_of
from mixprec.audit._report import AuditReport, Region, Timing
from mixprec.audit._syncs import syncs_of

__all__ = ["assemble", "device_for", "policy_for"]

REFERENCE = "A100"
"""What is forecast where the steps ran on a CPU."""


def assemble(
    step: Step,
    *,
    traits: Traits | None,
    flags: Flags,
    timing: Timing | None = None,
    policy: Policy | None = None,
    accelerator: str | None = None,
    device_type: str | None = None,
    recorded: int = 1,
    notes: Sequence[str] = (),
) -> AuditReport:
    """The report of `step`, without findings. **Cost**: pure Python, a few passes over the events."""
    kind = device_type or main_device(step)
    rules = policy or policy_for(kind)
    low = step.low
    target = device_for(traits, accelerator)
    products = products_of(step, rules)
    return AuditReport(
        precision=low or _computes_most(products),
        low=low,
        device_type=kind,
        measured_on=traits,
        findings=(),
        memory=memory_of(step),
        forecasts=forecasts_of(step, rules),
        products=products,
        casts=casts_of(step),
        syncs=syncs_of(step),
        clocks=clocks_of(step, kind),
        ops=op_rows(step, rules),
        promotions=promotions_of(step, rules),
        regions=_regions(step),
        timing=timing or Timing(),
        flags=flags,
        bound=bound_of(step, rules, target, low or ("bfloat16" if target.bf16 else "float16")),
        trains=any(op.phase is Phase.BACKWARD for op in step.ops()),
        steps_optimizer=any(held.kind is Kind.GRADIENT for held in step.held),
        recorded=recorded,
        op_calls=sum(1 for _ in step.ops()),
        notes=tuple(notes),
    )


def _computes_most(products: Products) -> str:
    """The dtype with the most FLOPs; float32 where there is no product."""
    flops: Counter[str] = Counter()
    for row in products.layers:
        flops[row.dtype] += row.flops
    return flops.most_common(1)[0][0] if flops else "float32"


def policy_for(device_type: str) -> Policy:
    """PyTorch's own list for that device, CUDA's where it has none."""
    return Policy.torch(device_type if device_type in ("cpu", "cuda", "mps", "xpu") else "cuda")


def device_for(traits: Traits | None, name: str | None) -> Accelerator:
    """The accelerator to forecast for: the one named, the one that ran, or the reference. Raises: UnknownNameError."""
    if name is not None:
        return accelerator_named(name)
    ran = accelerator_of(traits) if traits is not None else None
    return ran or accelerator_named(REFERENCE)


def _regions(step: Step) -> tuple[Region, ...]:
    entered = Counter((mark.location, mark.dtype) for mark in step.marks if mark.what == "region")
    return tuple(
        Region(location, "" if dtype == "island" else dtype, count, dtype == "island")
        for (location, dtype), count in entered.items()
    )
