"""An upper bound for the speed-up, before anyone tries: no op is faster than its FLOPs at peak rate or its bytes at
peak bandwidth, and no step is faster than the host can issue its ops.

The bound is honest in one direction only: a real step is slower than both of its times, and how much slower differs.
"""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._hardware import Accelerator
from mixprec._policy import Policy
from mixprec.audit._log import Step, is_half
from mixprec.audit._simulate import Precision, Work, simulate

__all__ = ["HOST", "Bound", "bound_of"]

HOST = 5e-6
"""Seconds that eager PyTorch needs at least to issue one op. Assumed: a few µs for the call and the launch; measured on
CPUs it is 9 µs for the smallest op. torch.compile and CUDA graphs get below it."""


@dataclass(frozen=True)
class Bound:
    """Lower bounds for the time of a step on `device`, in seconds, and what follows for the speed-up.

    `fp32`, `tf32` and `low` are the device's time; `host_fp32` and `host_low` what issuing the ops takes in eager
    mode. `product_share` is the part of the low-precision device time in products, the rest moves bytes.
    """

    device: str
    low_dtype: str
    native: bool
    fp32: float
    tf32: float | None
    low: float
    host_fp32: float
    host_low: float
    product_share: float
    memory_bound_share: float

    @property
    def speedup(self) -> float:
        """At most this over float32, if the host is never in the way."""
        return self.fp32 / self.low if self.low else 1.0

    @property
    def speedup_over_tf32(self) -> float | None:
        """At most this over a baseline that uses TF32 already; None where the device has none."""
        return None if self.tf32 is None or not self.low else self.tf32 / self.low

    @property
    def eager_speedup(self) -> float:
        """At most this in eager mode, where the host issues every op, casts included."""
        low = max(self.low, self.host_low)
        return max(self.fp32, self.host_fp32) / low if low else 1.0

    @property
    def host_bound(self) -> bool:
        """Whether issuing the ops takes longer than running them."""
        return self.host_low > self.low


def bound_of(step: Step, policy: Policy, device: Accelerator, low: str) -> Bound:
    """The bound for `step` on `device`. **Cost**: two simulations, pure Python."""
    wide = simulate(step, Precision("fp32"), policy).work
    narrow = simulate(step, Precision("mixed", low), policy).work
    times = [_time(work, device, "") for work in narrow]
    total = sum(times)
    products = sum(t for t, work in zip(times, narrow, strict=True) if work.flops)
    by_bytes = sum(t for t, work in zip(times, narrow, strict=True) if work.bytes / (device.bandwidth * 1e12) >= t)
    return Bound(
        device=device.name,
        low_dtype=low,
        native=device.native(low),
        fp32=sum(_time(work, device, "") for work in wide),
        tf32=None if device.tf32 is None else sum(_time(work, device, "tf32") for work in wide),
        low=total,
        host_fp32=HOST * sum(work.launches for work in wide),
        host_low=HOST * sum(work.launches for work in narrow),
        product_share=products / total if total else 0.0,
        memory_bound_share=by_bytes / total if total else 0.0,
    )


def _time(work: Work, device: Accelerator, wide: str) -> float:
    """Seconds at least: `wide` is the dtype that float32 products run in."""
    rate = device.rate(work.dtype if is_half(work.dtype) else wide or "float32")
    return max(work.flops / rate, work.bytes / (device.bandwidth * 1e12))
