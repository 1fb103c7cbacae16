"""A step is applied or skipped as a whole, on the gradients of its own window and nothing else, and says which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import Self

from mixprec._autocast import autocast
from mixprec._kernels import Kernels, MasterSteps, chosen
from mixprec._policy import Policy
from mixprec._precision import _checkpoint as checkpoint
from mixprec._precision import _checks as checks
from mixprec._precision import _choose as choose
from mixprec._precision import _config as config
from mixprec._precision import _sync as sync
from mixprec._precision import _window as window
from mixprec._precision._mode import AUTO, mode_named
from mixprec._precision._sharded import check_sharding
from mixprec._precision._sums import FiniteSums, has_gradient, multiply_, parameters_of
from mixprec._scaler import GradScaler
from mixprec._schedule import Schedule
from mixprec.errors import MisuseError
from mixprec.records import StepReason, StepReport, StepValues

__all__ = ["Precision"]


class Precision:
    """Trains in `mode`: casts, scales, accumulates, clips, steps or skips, and reports what it did.

        precision = Precision("auto", optimizer, max_norm=1.0, accumulate=4)
        for inputs, targets in loader:
            with precision.autocast():
                loss = loss_fn(model(inputs), targets)
            precision.backward(loss)
            report = precision.step()
        precision.finish()

    Gradients belong to a window: it begins with the first `backward`, which clears whatever gradients were left by
    others, and ends with the step, which clears its own. There is no `zero_grad` to call.

    Modes: `"fp32"`; `"fp16-mixed"` and `"bf16-mixed"` (float32 weights, autocast); `"fp16-master"` and
    `"bf16-master"` (16-bit weights, float32 masters in the optimizer, autocast); `"auto"`, which takes what the
    hardware computes natively. fp16 modes scale the loss. In every mode a step whose gradients are not finite is
    skipped, for all optimizers or none.

    Args:
        mode: one of the above.
        optimizers: none for inference, several to step all or none of them.
        model: the model. Needed to lower its weights (master modes), for `no_sync`, for module rules of a policy, and
            to call parameters by their names in errors.
        device: where to compute; None takes that of the parameters.
        max_norm: clip the gradients of all optimizers, as one vector, to this 2-norm; infinity measures only.
        accumulate: micro-batches per window.
        scheduler: one or several, stepped when a step was applied and only then.
        policy: a `Policy`, its name or its text; None is PyTorch's own list.
        scaler: a `GradScaler` of your own for the fp16 modes.
        kernels: whose kernels read the gradients and step masters: PyTorch's own (`Kernels.FOREACH`); those for masters
            of `AdamW(fused=True)`, on CPU a piece at a time (`Kernels.PIECES`); or, on CUDA, `Kernels.TRITON`.
        drop_nonfinite: leave single micro-batches whose gradients are not finite out of the mean, instead of skipping
            the whole window; `step` reports each as `DROPPED`, and the loss scale backs off. In one process only.

    Raises: InvalidValueError, UnknownNameError for arguments; MisuseError for parameters that `mode` cannot train.

    **Cost** per step beside the optimizer's: one read of the gradients, and one write where the optimizer is not fused
    and they are clipped or scaled. A host sync on accelerators where a scheduler is handed over or an optimizer is not
    fused.
    """

    def __init__(
        self,
        mode: str = AUTO,
        *optimizers: Optimizer,
        model: nn.Module | None = None,
        device: torch.device | str | None = None,
        max_norm: float | None = None,
        accumulate: int = 1,
        scheduler: Schedule | Sequence[Schedule] | None = None,
        policy: Policy | str | None = None,
        scaler: GradScaler | None = None,
        drop_nonfinite: bool = False,
        kernels: Kernels | str = Kernels.FOREACH,
    ) -> None:
        if mode != AUTO:
            mode_named(mode)
        checks.check_max_norm(max_norm)
        checks.check_accumulate(accumulate)
        checks.check_dropping(drop_nonfinite)
        checks.check_model(model)
        self.device = choose.device_of(device, model, optimizers)
        self._mode, self.reason = choose.mode_for(mode, self.device)
        self._schedulers = choose.listed(scheduler)
        checks.check_optimizers(self._mode, optimizers)
        checks.check_lowering(self._mode, model)
        check_sharding(self._mode, model)
        checks.check_policy(self._mode, policy)
        checks.check_scaler(self._mode, scaler, optimizers)
        checks.check_schedules(self._schedulers, optimizers)
        checks.check_parameters(self._mode, optimizers, checks.names_of(model, optimizers))
        self.optimizers = optimizers
        self.model = model
        self.max_norm = max_norm
        self.policy = policy
        self.autocast()  # a policy that does not exist, or not fit the model, is an error now and not in the first step
        self.kernels = chosen(kernels)
        checks.check_kernels(self.kernels, self._mode, self.device)
        self.scaler = scaler if scaler is not None else choose.scaler_for(self._mode, self.device, self.kernels)
        self._masters = choose.masters_for(self._mode, optimizers, model)
        self._master_steps = choose.master_steps_for(self.kernels, optimizers, self._masters)
        self._window = window.Window(accumulate)
        self._sums = FiniteSums() if drop_nonfinite else None
        self._sync = sync.Sync(model)
        self._scale: Tensor | None = None
        self._steps = 0

    @classmethod
    def from_config(
        cls,
        settings: Mapping[str, Any],
        *optimizers: Optimizer,
        model: nn.Module | None = None,
        scheduler: Schedule | Sequence[Schedule] | None = None,
    ) -> Self:
        """As the constructor, from the keys `mode`, `device`, `max_norm`, `accumulate`, `drop_nonfinite`, `kernels`,
        `policy` (a name or text) and `scaler` (a mapping of the `GradScaler` arguments).

        Raises: InvalidValueError, UnknownNameError that name the key.
        """
        given = config.arguments(settings)
        mode = given.pop("mode", AUTO)
        scaler_settings = given.pop("scaler", None)
        if scaler_settings is not None:
            device = choose.device_of(given.get("device"), model, optimizers)
            given["scaler"] = config.scaler_from(scaler_settings, device.type)
        return cls(mode, *optimizers, model=model, scheduler=scheduler, **given)

    @property
    def mode(self) -> str:
        """The mode that is in force; what `"auto"` chose."""
        return self._mode.name

    @property
    def accumulating(self) -> bool:
        """Whether a window is open: gradients are held that no step has used yet."""
        return not self._window.empty

    # ── forward and backward ────────────────────────────────────────────────────────────────────────────────────────

    def autocast(self) -> autocast:
        """A region for forward and loss, as context manager or decorator; in `fp32` it switches autocast off."""
        lowered = self._mode.lowered
        region = autocast(self.device.type, self._mode.compute if lowered else None, lowered, policy=self.policy)
        return region if self.model is None or self.policy is None else region.rooted(self.model)

    def backward(
        self,
        loss: Tensor,
        weight: float | None = None,
        total: float | None = None,
        *,
        retain_graph: bool | None = None,
    ) -> None:
        """Scale `loss` and add its gradient to the window's, so that the step sees the mean over the window.

        Without `weight` micro-batches count alike. With `weight=len(inputs)` and a loss that is a mean over the
        micro-batch, the gradient is that of the mean over all samples of the window, however unequal it is split.
        Several losses of one micro-batch are several calls before `step`, of one weight.

        Args:
            loss: a tensor with one element.
            weight: positive; for all micro-batches of a window or for none.
            total: the sum of the window's weights where it is known up front. It saves a pass over the gradients, and
                among ranks that average their gradients (DDP) it makes unequal ranks exact: give the sum over all
                ranks divided by the number of ranks.
            retain_graph: as in `Tensor.backward`.

        Raises: MisuseError without an optimizer, for a loss without graph, for weights that contradict each other;
            InvalidValueError for a loss or weight of the wrong kind.
        """
        self._require_optimizers("backward")
        checks.check_loss(loss)
        opened = window.with_weight(self._window, weight, total)
        if self._window.empty:
            self._clear()
        self._window = opened
        share = window.share(opened)
        scaled: Tensor = self.scaler.scale(loss if share == 1.0 else loss * share)
        scaled.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call] # torch leaves it untyped
        self._sync.note_backward()

    @contextmanager
    def no_sync(self, last: bool = False) -> Iterator[None]:
        """Keep ranks from exchanging gradients in all micro-batches of a window but its last.

        Wraps forward and backward of one micro-batch; does nothing without a distributed `model`. Say `last=True` for
        a micro-batch that completes the window early, such as the loader's last before `finish`.
        """
        with self._sync.paused(exchange=last or self._window.last):
            yield

    # ── step ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> StepReport:
        """End a micro-batch; at the end of the window clip, step or skip, move the loss scale, step the schedulers.

        Raises: MisuseError without an optimizer or a `backward`, where no parameter got a gradient, or where ranks have
            not exchanged gradients; LossScaleFloorError as `GradScaler.update`.
        """
        self._require_optimizers("step")
        if self._window.current is None:
            text = "step() was called before backward(loss): this micro-batch has contributed nothing yet."
            raise MisuseError("MP170", "step", text)
        return self._take() if self._window.last else self._next_micro_batch()

    def finish(self) -> StepReport | None:
        """Step with what an incomplete window holds, as the mean over what is there; None if nothing is.

        To be called after the last batch of an epoch or run. Raises: as `step`.
        """
        self._require_optimizers("finish")
        return None if self._window.empty else self._take()

    def _next_micro_batch(self) -> StepReport:
        if self._masters is not None and self._sync.exchanged:
            self._masters.gather_()  # sums over the window are kept in float32
        dropped = not self._admit()
        if dropped:
            self._clear()
        self._window = window.next_micro_batch(self._window)
        if self._scale is None:
            self._scale = torch.tensor(self.scaler.get_scale(), device=self.device)
        reason = StepReason.DROPPED if dropped else StepReason.ACCUMULATING
        values = StepValues(torch.full_like(self._scale, dropped), self._scale)
        return StepReport(values, _fetch, step=self._steps, reason=reason)

    def _admit(self) -> bool:
        """Whether the current micro-batch counts; one that is dropped leaves the window's weights."""
        if self._sums is None or self._window.current is None:
            return True
        admitted = self._sums.admit(parameters_of(self.optimizers))
        if not admitted:
            self._window = window.without_current(self._window)
        return admitted

    def _take(self) -> StepReport:
        self._sync.require_exchanged()
        direct = self._direct()
        if self._masters is not None and direct is None:
            self._masters.gather_()
        self._admit()
        if self._sums is not None:  # where all were dropped the last one's gradients stay, and the step is skipped
            self._sums.deliver()
        multiply_(parameters_of(self.optimizers), window.correction(self._window))
        report = self._deliver(self.optimizers if direct is None else direct.optimizers)
        if direct is not None:
            direct.stepped_()
        elif self._masters is not None:
            self._masters.publish_()
        self._clear()
        self._window = window.Window(self._window.length)
        self._scale = report.on_device.scale_after
        self._steps += 1
        if self._schedulers and report.applied:
            for scheduler in self._schedulers:
                scheduler.step()
        return report

    def _direct(self) -> MasterSteps | None:
        """What steps masters on the 16-bit gradients, where those are the whole window's."""
        steps, alone = self._master_steps, self._sums is None and window.correction(self._window) == 1.0
        return steps if steps is not None and alone and steps.ready() else None

    def _deliver(self, optimizers: Sequence[Optimizer]) -> StepReport:
        """Step or skip, and move the scale; it backs off after a window of which a part was dropped, too."""
        counted = next((o for o in optimizers if has_gradient(o)), None)
        if counted is None and sync.alone():  # among ranks the others' gradients may count
            raise MisuseError("MP143", "step", _NO_GRADIENT)
        self.scaler.step_together(optimizers, max_norm=self.max_norm)
        partly = self._window.dropped > 0.0 and self._window.weight_sum > 0.0
        lower = torch.tensor(self.scaler.get_scale() * self.scaler.get_backoff_factor()) if partly else None
        self.scaler.update(None if lower is None else lower.to(self.device))
        return self.scaler.report(counted or optimizers[0])

    # ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────────

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs beside the states of model, optimizers and schedulers, which stay theirs.

        Inside a window the summed gradients are part of it, so that resuming there is exact too; among ranks that have
        not exchanged them every rank has to save its own. Tensors are references, as in a module's state.
        """
        if self._masters is not None and self._sync.exchanged:
            self._masters.gather_()
        return {
            "version": checkpoint.VERSION,
            "mode": self.mode,
            "scaler": self.scaler.state_dict(),
            "window": checkpoint.write_window(self._window),
            "gradients": None if self._window.empty else [p.grad for p in parameters_of(self.optimizers)],
            "sums": None if self._sums is None else [self._sums.sums.get(p) for p in parameters_of(self.optimizers)],
            "masters": None if self._masters is None else self._masters.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore; to be called after the model's state is loaded. Raises: CheckpointError that names the key."""
        parameters = parameters_of(self.optimizers)
        checkpoint.check_header(state, self.mode, masters=self._masters is not None, sums=self._sums is not None)
        opened = checkpoint.read_window(state["window"], self._window.length)
        gradients = checkpoint.read_tensors("gradients", state["gradients"], parameters, empty=opened.empty)
        sums = checkpoint.read_tensors("sums", state["sums"], parameters, empty=self._sums is None)
        if self._masters is not None:
            self._masters.check_state_dict(state["masters"])
        checkpoint.restore_scaler(self.scaler, state["scaler"])
        if self._masters is not None:
            self._masters.load_state_dict(state["masters"])
        self._clear()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self._sums is not None:
            self._sums.sums = {p: tensor for p, tensor in zip(parameters, sums, strict=True) if tensor is not None}
        self._window = opened
        self._scale = None
        self.scaler.scale(torch.zeros((), device=self.device))  # makes its tensors: the next call may be a step

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _require_optimizers(self, call: str) -> None:
        if not self.optimizers:
            text = f"{call}() needs an optimizer, and this Precision has none: Precision({self.mode!r}, optimizer)."
            raise MisuseError("MP145", call, text)

    def _clear(self) -> None:
        weights = [] if self._masters is None else self._masters.weights
        for parameter in (*parameters_of(self.optimizers), *weights):
            parameter.grad = None


def _fetch(values: StepValues[Any]) -> StepValues[float]:
    found_inf, scale = torch.stack([values.found_inf, values.scale_before]).tolist()
    return StepValues(found_inf, scale)


_NO_GRADIENT = (
    "No parameter of any optimizer has a gradient, so there is nothing to step with: the loss does not depend on them, "
    "or gradients were cleared between backward() and step()."
)
