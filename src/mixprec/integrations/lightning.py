"""Lightning's Trainer and Fabric with mixprec's scaler and policy, as precision plugins.

    from mixprec.integrations.lightning import MixprecPrecision

    trainer = Trainer(plugins=[MixprecPrecision("fp16-mixed", policy="uniform")], gradient_clip_val=1.0)
    fabric = Fabric(plugins=[MixprecFabricPrecision("bf16-mixed")])

What differs from Lightning's own plugins:

- Fused optimizers may be clipped. Lightning refuses it, because torch's scaler leaves their gradients scaled; here
  they are unscaled before `on_before_optimizer_step` like everybody's, and the step is told so.
- `plugin.report` is the `StepReport` of the last step.
- `MixprecFSDPPrecision("fp16-mixed", scaler=...)` takes a scaler. Lightning's `FSDPPrecision` raises for any.
- Fabric's inputs stay as they are. Lightning casts them to 16 bits at the door, where a large one becomes infinite.

Tried with lightning 2.6.6. Source:
https://github.com/Lightning-AI/pytorch-lightning/blob/2.6.6/src/lightning/pytorch/plugins/precision/amp.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mixprec._autocast import autocast
from mixprec._policy import Policy
from mixprec._scaler import GradScaler, ShardedGradScaler
from mixprec.errors import InvalidValueError, MissingExtraError, UnknownNameError
from mixprec.records import StepReport

try:
    from lightning.fabric.plugins.precision import MixedPrecision as _FabricMixed
    from lightning.pytorch.plugins.precision import FSDPPrecision as _TrainerFSDP
    from lightning.pytorch.plugins.precision import MixedPrecision as _TrainerMixed
    from lightning.pytorch.utilities import GradClipAlgorithmType
except ModuleNotFoundError as error:
    raise MissingExtraError("lightning", "lightning", "mixprec.integrations.lightning") from error

__all__ = ["MixprecFSDPPrecision", "MixprecFabricPrecision", "MixprecPrecision"]

_LIGHTNINGS = {"fp16-mixed": "16-mixed", "bf16-mixed": "bf16-mixed"}
_DTYPES = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


class _Mixprec:
    """What the plugins share: the scaler of the mode, the region of the policy, the report of the last step."""

    scaler: GradScaler | None
    precision: str
    device: str
    policy: Policy | str | None
    report: StepReport | None = None

    def _region(self) -> autocast:
        return autocast(self.device, _DTYPES[self.precision], policy=self.policy)

    def _step(self, optimizer: torch.optim.Optimizer, max_norm: float | None = None, **kwargs: Any) -> Any:
        assert self.scaler is not None
        result = self.scaler.step(optimizer, max_norm=max_norm, **kwargs)
        self.report = self.scaler.report(optimizer)
        self.scaler.update()
        return result


class MixprecPrecision(_Mixprec, _TrainerMixed):  # type: ignore[misc] # lightning's types are not looked at
    """For `lightning.pytorch.Trainer(plugins=[...])`.

    Args:
        mode: `"fp16-mixed"` or `"bf16-mixed"`.
        device: the device type; None is the accelerator's, or the CPU.
        scaler: a `mixprec.GradScaler` of your own for fp16.
        policy: a `Policy`, its name or its text; None is PyTorch's own list.

    Raises: UnknownNameError for another mode, InvalidValueError for a scaler that is not ours or that the mode does not
        use.

    **Cost** of a step: one read and one write of the gradients to unscale them for Lightning's hooks and clipping.
    """

    def __init__(
        self,
        mode: str = "fp16-mixed",
        device: str | None = None,
        *,
        scaler: GradScaler | None = None,
        policy: Policy | str | None = None,
    ) -> None:
        kind, name = _device(device), _lightnings(mode)
        super().__init__(name, kind, _scaler_for(mode, kind, scaler))
        self.policy = policy
        self._region()  # a policy that does not exist is an error now

    def autocast_context_manager(self) -> autocast:
        """A region of ours."""
        return self._region()

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: Any, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """As Lightning's, for fused optimizers too."""
        if self.scaler is None or isinstance(optimizer, torch.optim.LBFGS):
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)
        result = closure()
        skipped = result is None and model.automatic_optimization  # training_step returned None: there was no backward
        if not skipped:
            self.scaler.unscale_(optimizer)
        self._after_closure(model, optimizer)
        return result if skipped else self._step(optimizer, **kwargs)

    def clip_gradients(
        self,
        optimizer: torch.optim.Optimizer,
        clip_val: float = 0.0,
        gradient_clip_algorithm: Any = GradClipAlgorithmType.NORM,
    ) -> None:
        """As Lightning's, for fused optimizers too: their gradients are unscaled."""
        super(_TrainerMixed, self).clip_gradients(optimizer, clip_val, gradient_clip_algorithm)


class MixprecFSDPPrecision(_Mixprec, _TrainerFSDP):  # type: ignore[misc] # lightning's types are not looked at
    """For `Trainer(strategy="fsdp", plugins=[...])`. Arguments and errors as `MixprecPrecision`'s.

    The scaler's ranks are all of the world unless one of your own says otherwise. Clipping by norm, which Lightning
    refuses under FSDP, is done by the scaler's step, over all shards.
    """

    def __init__(
        self,
        mode: str = "fp16-mixed",
        device: str | None = None,
        *,
        scaler: GradScaler | None = None,
        policy: Policy | str | None = None,
    ) -> None:
        name, kind = _lightnings(mode), _device(device)
        super().__init__("32-true")  # with "16-mixed" it makes torch's scaler, for CUDA whatever the device is
        self.precision = name
        self.device = kind
        self.policy = policy
        self.scaler = _scaler_for(mode, kind, scaler, ShardedGradScaler)
        self._max_norm: float | None = None
        self._region()  # a policy that does not exist is an error now

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """A region of ours."""
        with self._region():
            yield

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: Any, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """As Lightning's; a clipping that was asked for meanwhile is part of the step."""
        if self.scaler is None:
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)
        result = closure()
        self._max_norm = None
        self._after_closure(model, optimizer)
        if result is None and model.automatic_optimization:
            return result
        return self._step(optimizer, self._max_norm, **kwargs)

    def clip_grad_by_norm(self, optimizer: torch.optim.Optimizer, clip_val: float) -> None:
        """Note it for the step, whose norm is that of all shards. Raises: InvalidValueError in bf16-mixed."""
        if self.scaler is None:
            advice = "In bf16-mixed call the root module's clip_grad_norm_ in configure_gradient_clipping."
            raise InvalidValueError("gradient_clip_val", clip_val, "None without a loss scale under FSDP", advice)
        self._max_norm = clip_val


class MixprecFabricPrecision(_Mixprec, _FabricMixed):  # type: ignore[misc] # lightning's types are not looked at
    """For `lightning.fabric.Fabric(plugins=[...])`. Arguments and errors as `MixprecPrecision`'s.

    `max_norm` clips in every step of fp16-mixed, in the same pass. `fabric.clip_gradients` works too, but raises where
    gradients are not finite, before the scaler can skip the step: call it with `error_if_nonfinite=False`.
    """

    def __init__(
        self,
        mode: str = "fp16-mixed",
        device: str | None = None,
        *,
        scaler: GradScaler | None = None,
        policy: Policy | str | None = None,
        max_norm: float | None = None,
    ) -> None:
        kind, name = _device(device), _lightnings(mode)
        if max_norm is not None and mode != "fp16-mixed":
            advice = "Without a loss scale Fabric steps by itself: call fabric.clip_gradients."
            raise InvalidValueError("max_norm", max_norm, f"None in mode {mode!r}", advice)
        super().__init__(name, kind, _scaler_for(mode, kind, scaler))
        self.policy = policy
        self.max_norm = max_norm
        self._region()  # a policy that does not exist is an error now

    def forward_context(self) -> autocast:
        """A region of ours."""
        return self._region()

    def convert_input(self, data: Any) -> Any:
        """As it is: the region casts what an op needs."""
        return data

    def optimizer_step(self, optimizer: torch.optim.Optimizer, **kwargs: Any) -> Any:
        """As Fabric's, with a report."""
        if self.scaler is None:
            return super().optimizer_step(optimizer, **kwargs)
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidValueError("optimizer", "LBFGS", "an optimizer that steps without a closure")
        return self._step(optimizer, self.max_norm, **kwargs)

    def unscale_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """As Fabric's, for fused optimizers too."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)


def _lightnings(mode: str) -> str:
    if mode not in _LIGHTNINGS:
        raise UnknownNameError("mode", str(mode), _LIGHTNINGS)
    return _LIGHTNINGS[mode]


def _device(device: str | None) -> str:
    if device is not None:
        return torch.device(device).type
    found = torch.accelerator.current_accelerator()
    return "cpu" if found is None else found.type


def _scaler_for(
    mode: str, device: str, scaler: object, make: Callable[[str], GradScaler] = GradScaler
) -> GradScaler | None:
    if mode != "fp16-mixed":
        if scaler is not None:
            advice = "fp16 alone needs a loss scale: leave the scaler out."
            raise InvalidValueError("scaler", type(scaler).__name__, f"None in mode {mode!r}", advice)
        return None
    if scaler is None:
        return make(device)
    if not isinstance(scaler, GradScaler):
        advice = "Make one and load the other's state: GradScaler(device).load_state_dict(old.state_dict())."
        raise InvalidValueError("scaler", type(scaler).__name__, "a mixprec.GradScaler", advice)
    return scaler
