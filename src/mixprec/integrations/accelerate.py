"""Accelerate with mixprec's scaler and policy: what it says about a step is what the scaler decided.

    from mixprec.integrations.accelerate import MixprecAccelerator

    accelerator = MixprecAccelerator(mixed_precision="fp16", policy="uniform")
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_fn(model(inputs), targets))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print(accelerator.report(optimizer))

What differs from Accelerate's own:

- `optimizer.step_was_skipped` is right for fused optimizers, which are called also when they skip: Accelerate counts
  calls of `step`, and so lets schedulers move on after a skip. It is read from the step's report, when it is asked for.
- The scale has bounds, and `accelerator.report(optimizer)` is the `StepReport` of the last step.
- `mixed_precision="fp16"` is fp16 on a CPU too. Accelerate trains in float32 there without a word.
- Under FSDP1 all ranks agree, with fused optimizers as well.

Tried with accelerate 1.15.0. Source:
https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/optimizer.py
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from mixprec._autocast import autocast as _autocast
from mixprec._policy import Policy
from mixprec._scaler import GradScaler
from mixprec.errors import InvalidValueError, MissingExtraError
from mixprec.records import StepReport

try:
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.utils import DistributedType
except ModuleNotFoundError as error:
    raise MissingExtraError("accelerate", "accelerate", "mixprec.integrations.accelerate") from error

__all__ = ["MixprecAccelerator", "MixprecOptimizer", "use_mixprec"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_DECIDE_THEMSELVES = (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)


class MixprecOptimizer(AcceleratedOptimizer):  # type: ignore[misc] # accelerate has no types
    """Accelerate's optimizer, which asks the scaler whether its step was applied."""

    _report: StepReport | None = None

    def step(self, closure: Any = None) -> None:
        """As Accelerate's. Raises: RuntimeError for a closure under a loss scale."""
        super().step(closure)
        if self.scaler is not None and self.gradient_state.sync_gradients:
            self._report = self.scaler.report(self.optimizer)

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was skipped. **Cost**: a host sync, the first time it is asked."""
        return self._report is not None and not self._report.applied

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_report"}


class MixprecAccelerator(Accelerator):  # type: ignore[misc] # accelerate has no types
    """`accelerate.Accelerator` with `scaler` and `policy`; every other argument is Accelerate's.

    Args:
        scaler: a `mixprec.GradScaler` for `mixed_precision="fp16"`. None makes one, from a `GradScalerKwargs` handler
            if there is one.
        policy: a `Policy`, its name or its text; None is PyTorch's own list.

    Raises: InvalidValueError for a scaler that is not ours or that no mode needs, and under DeepSpeed or Megatron,
        which scale the loss themselves.
    """

    _mixprec_policy: Policy | str | None = None

    def __init__(
        self, *args: Any, scaler: GradScaler | None = None, policy: Policy | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        use_mixprec(self, scaler=scaler, policy=policy)

    def report(self, optimizer: torch.optim.Optimizer) -> StepReport:
        """The outcome of the last step of `optimizer`, prepared or not. Raises: InvalidValueError before the first."""
        if self.scaler is None:
            advice = "Without a loss scale Accelerate steps by itself; only fp16 has reports."
            raise InvalidValueError("mixed_precision", self.mixed_precision, "'fp16' for a report", advice)
        inner = optimizer
        while isinstance(inner, AcceleratedOptimizer):
            inner = inner.optimizer
        report: StepReport = self.scaler.report(inner)
        return report

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        """As Accelerate's, with `step_was_skipped` from the report."""
        prepared = super().prepare_optimizer(optimizer, device_placement)
        if type(prepared) is AcceleratedOptimizer:
            prepared.__class__ = MixprecOptimizer
        return prepared

    def prepare_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """As Accelerate's, with the policy in force inside the region that it puts around `forward`."""
        if not self.native_amp or self._mixprec_policy is None or hasattr(model, "_original_forward"):
            return super().prepare_model(model, *args, **kwargs)
        original = model.forward
        region = self._region().rooted(model)
        if hasattr(original, "__func__"):
            model.forward = types.MethodType(region(original.__func__), model)
        else:
            model.forward = region(original)
        prepared = super().prepare_model(model, *args, **kwargs)
        model._original_forward = original  # type: ignore[assignment] # what unwrap_model puts back
        return prepared

    @contextmanager
    def autocast(self, autocast_handler: Any = None) -> Iterator[None]:
        """As Accelerate's, with the policy."""
        with super().autocast(autocast_handler):
            if self.native_amp and self._mixprec_policy is not None and torch.is_autocast_enabled(self.device.type):
                with self._region():
                    yield
            else:
                yield

    def _region(self) -> _autocast:
        dtype = _DTYPES.get(self.mixed_precision)
        return _autocast(self.device.type, dtype, policy=self._mixprec_policy)


def use_mixprec(
    accelerator: Accelerator, *, scaler: GradScaler | None = None, policy: Policy | str | None = None
) -> MixprecAccelerator:
    """Make `accelerator`, which has prepared nothing yet, a `MixprecAccelerator`, in place; returns it.

    For an accelerator that somebody else makes, such as a Trainer. Arguments and errors as there.
    """
    if accelerator._models or accelerator._optimizers:
        advice = "What is prepared already holds Accelerate's own scaler."
        raise InvalidValueError("accelerator", "one that has prepared objects", "one that has not", advice)
    if accelerator.distributed_type in _DECIDE_THEMSELVES:
        name = accelerator.distributed_type.value
        advice = "It scales the loss by itself, and a step has one decider: mixprec.integrations.deepspeed reads it."
        raise InvalidValueError("distributed_type", name, "any but DeepSpeed and Megatron", advice)
    mode = accelerator.mixed_precision
    _check_scaler(scaler, mode)
    if policy is not None:
        if mode not in _DTYPES:
            raise InvalidValueError("policy", policy, f"None with mixed_precision={mode!r}")
        _autocast(accelerator.device.type, _DTYPES[mode], policy=policy)  # one that does not exist is an error now
    if mode == "fp16":
        accelerator.native_amp = True
        accelerator.scaler = _scaler_for(accelerator) if scaler is None else scaler
    accelerator.__class__ = MixprecAccelerator
    accelerator._mixprec_policy = policy
    made: MixprecAccelerator = accelerator
    return made


def _check_scaler(scaler: object, mode: str) -> None:
    if scaler is None:
        return
    if not isinstance(scaler, GradScaler):
        advice = "Make one and load the other's state: GradScaler(device).load_state_dict(old.state_dict())."
        raise InvalidValueError("scaler", type(scaler).__name__, "a mixprec.GradScaler", advice)
    if mode != "fp16":
        advice = "fp16 alone needs a loss scale: leave the scaler out."
        raise InvalidValueError("scaler", "GradScaler", f"None with mixed_precision={mode!r}", advice)


def _scaler_for(accelerator: Accelerator) -> GradScaler:
    given = {} if accelerator.scaler_handler is None else accelerator.scaler_handler.to_kwargs()
    sharded = accelerator.distributed_type is DistributedType.FSDP
    return GradScaler(accelerator.device.type, process_group="world" if sharded else None, **given)
