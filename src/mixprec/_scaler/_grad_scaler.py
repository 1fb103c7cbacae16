"""A step is applied exactly when every unscaled gradient on every rank is finite, and the scale stays in its bounds."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState, _refresh_per_optimizer_state

from mixprec._agreement import Grouping, OnDisagreement, settle
from mixprec._gradients import collect, reciprocal, refuse_half
from mixprec._headroom import HeadroomRules
from mixprec._kernels import Kernels, chosen
from mixprec._loss_scale import Rules, State, initial
from mixprec._scaler._contract import Contract, contract_of
from mixprec._scaler._course import course_of
from mixprec._scaler._guards import DEFAULT_GUARDS, Guard, guards_from
from mixprec._scaler._outputs import scaled, times
from mixprec._scaler._phase import Turn, agreed, amax_of, largest
from mixprec._scaler._refusals import check_max_norm, cuda_is_missing, refuse_closure
from mixprec._scaler._settings import MAX_SCALE, MIN_SCALE, Settings
from mixprec._scaler._takes_steps import TakesSteps
from mixprec.errors import InvalidValueError
from mixprec.records import StepReport


class GradScaler(TakesSteps):
    """Drop-in for `torch.amp.GradScaler`: same calls, same errors, plus bounds, clipping in `step`, and reports.

        scaler = GradScaler("cpu")
        scaler.scale(loss).backward()
        scaler.step(optimizer, max_norm=1.0)
        scaler.update()
        scaler.report(optimizer).applied

    Args:
        device: as torch's.
        init_scale, growth_factor, backoff_factor, growth_interval, enabled: as torch's, and checked.
        min_scale, max_scale: the scale stays within them. A default bound gives way to an `init_scale` outside it.
        floor_patience: raise after so many consecutive overflows with the scale at `min_scale`; None never does.
        rules: any other `Rules`, such as `presets.MEGATRON.rules`, or `HeadroomRules()`, under which the scale follows
            the largest gradient; then the arguments above keep their defaults.
        guards: the kinds of misuse to watch for, by default all that cost nothing; an empty set watches for none.
        process_group: ranks that have to agree whether a step is applied: a process group, a list of them, or an
            `Agreement`. None: the ranks of DTensor parameters' meshes, else this process alone, which is right for DDP.
        kernels: what reads and multiplies gradients, PyTorch's own kernels or, if asked for, `Kernels.TRITON`.

    Raises: AssertionError as torch does, InvalidValueError for values that torch accepts and is broken by,
        LossScaleFloorError from `update`.

    **Cost** of step and update: with a fused optimizer one read of the gradients, none written, no host sync on
    accelerators. With others one read and one write, and the skip is decided on the host. `HeadroomRules` read the
    gradients once more, for their largest magnitude: 4 bytes per float32 parameter, at memory speed.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        min_scale: float = MIN_SCALE,
        max_scale: float = MAX_SCALE,
        floor_patience: int | None = 100,
        rules: Rules | HeadroomRules | None = None,
        guards: Iterable[Guard | str] = DEFAULT_GUARDS,
        process_group: Grouping = None,
        kernels: Kernels | str = Kernels.FOREACH,
    ) -> None:
        self._guards = guards_from(guards)
        self._kernels = chosen(kernels)
        if enabled and cuda_is_missing(device):
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        super().__init__(device, enabled=enabled)
        self._process_group = process_group
        self._know_nothing()
        if self._enabled:  # torch's constructor has the last word: an intervention may have switched it off
            settings = Settings(
                init_scale, growth_factor, backoff_factor, growth_interval, min_scale, max_scale, floor_patience
            )
            self._allowance = self._floor_overflows = None
            self._adopt(course_of(settings.rules(rules)))
            self._hold(initial(self._course.rules))

    # scale ---------------------------------------------------------------------------------------------------------

    @overload
    def scale(self, outputs: Tensor) -> Tensor: ...

    @overload
    def scale(self, outputs: list[Tensor]) -> list[Tensor]: ...

    @overload
    def scale(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...

    @overload
    def scale(self, outputs: Iterable[Tensor]) -> Iterable[Tensor]: ...

    def scale(self, outputs: Any) -> Any:
        """`outputs` times the loss scale: a tensor, or any nest of lists, tuples, named tuples and mappings of them.

        **Cost**: one kernel per tensor, no host sync.
        """
        return scaled(outputs, self._times_scale) if self._enabled else outputs

    def _times_scale(self, output: Tensor) -> Tensor:
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(output.device)
        assert self._scale is not None  # torch's check is a function that torch.compile does not trace
        result = times(output, self._scale)
        self._watch.scaled(result)
        return result

    def _get_scale_async(self) -> Tensor | None:
        self._watch.scale_used()
        return self._scale

    # unscale_ ------------------------------------------------------------------------------------------------------

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients of `optimizer` by the scale in place, and notes whether they are finite.

        **Cost**: one read and one write of the gradients; one collective where ranks have to agree; no host sync.
        """
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._watch.before_division(optimizer)
        amax = amax_of(optimizer, self._plans, self._means, scale.device) if self._course.needs_amax else None
        found_inf = torch.zeros((), dtype=torch.float32, device=scale.device)
        flags = self._unscale_grads_(optimizer, reciprocal(scale), found_inf, self._keeps_half)
        flags, amax = agreed(self._agreements.of((optimizer,)), flags, amax, scale.device)
        state["found_inf_per_device"] = flags
        self._course.note(amax)
        state["stage"] = OptState.UNSCALED
        self._watch.divided(optimizer)

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[torch.device, Tensor]:
        params, plan = self._plans.of(optimizer)
        gradients = collect(params, plan=plan)
        if not allow_fp16 and gradients.has_half():
            refuse_half(optimizer)
        flags = self._means.multiply_(gradients, inv_scale, found_inf)
        if self._current_rules().min_scale < 1.0:  # dividing by less than 1 can make infinities: look at the result
            again = self._means.multiply_(gradients, torch.ones_like(inv_scale), torch.zeros_like(found_inf))
            flags = {device: torch.maximum(flag, again[device]) for device, flag in flags.items()}
        return flags

    def _check_inf_per_device(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        self._judge([Turn(optimizer, Contract.FUSED, scale)], None)
        return self._found_inf_per_device(optimizer)

    # step ----------------------------------------------------------------------------------------------------------

    def step(
        self, optimizer: torch.optim.Optimizer, *args: Any, max_norm: float | None = None, **kwargs: Any
    ) -> float | None:
        """Steps `optimizer` if its unscaled gradients are finite on every rank. Returns what `optimizer.step` returns.

        `max_norm` clips the unscaled gradients to this global 2-norm first, as `torch.nn.utils.clip_grad_norm_` would
        between `unscale_` and `step`, but without writing them where the optimizer is fused. Infinity clips nothing
        and still puts the norm in the report.

        Raises: RuntimeError for a closure or a second step before `update`; AssertionError without a gradient.
        """
        check_max_norm(max_norm)
        if not self._enabled:
            (result,) = self._take_unscaled([Turn(optimizer, contract_of(optimizer), None)], max_norm, args, kwargs)
            return result
        refuse_closure(args, kwargs)
        self._check_scale_growth_tracker("step")
        (result,) = self._take([self._turn(optimizer)], max_norm, args, kwargs)
        return result

    def step_together(
        self, optimizers: Sequence[torch.optim.Optimizer], *, max_norm: float | None = None
    ) -> tuple[StepReport, ...]:
        """Steps all `optimizers` or none: if a gradient of any of them is not finite on any rank, all of them skip.

        `max_norm` clips by the norm of all their gradients taken as one vector. Optimizers without a gradient sit out.
        Returns their reports, in order.

        Raises: as `step`.
        """
        check_max_norm(max_norm)
        if len({id(optimizer) for optimizer in optimizers}) < len(optimizers):
            raise InvalidValueError("optimizers", [type(o).__name__ for o in optimizers], "each optimizer once")
        if self._enabled:
            self._check_scale_growth_tracker("step")
            self._take([self._turn(optimizer) for optimizer in optimizers], max_norm, (), {})
        else:
            self._take_unscaled([Turn(o, contract_of(o), None) for o in optimizers], max_norm, (), {})
        return tuple(self.report(optimizer) for optimizer in optimizers)

    def report(self, optimizer: torch.optim.Optimizer) -> StepReport:
        """The outcome of the last step of `optimizer`; right for fused optimizers too. No sync until a number is read.

        Raises: InvalidValueError if this scaler has not stepped it.
        """
        return self._reports.last(optimizer)

    # update --------------------------------------------------------------------------------------------------------

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Moves the loss scale by what the steps since the last update found, or to `new_scale`.

        Raises: AssertionError as torch does; LossScaleFloorError after `floor_patience` overflows at `min_scale`;
            InvalidValueError for a `new_scale` outside the bounds.
        """
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set_scale(new_scale)
            self._window_closed(scale)
            return
        states = self._per_optimizer_states.values()
        flags = [flag for state in states for flag in state["found_inf_per_device"].values()]
        if not flags:
            raise AssertionError("No inf checks were recorded prior to update.")
        try:
            self._advance(largest(flags, scale.device))
        finally:
            self._window_closed(scale)

    def _window_closed(self, scale: Tensor) -> None:
        """The next iteration begins, also where the last one ended in an error."""
        self._reports.close(scale)
        self._watch.updated()
        self._course.close()
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def check_ranks(
        self,
        optimizer: torch.optim.Optimizer,
        on_disagreement: OnDisagreement = OnDisagreement.RAISE,
    ) -> bool:
        """Whether all ranks that share the parameters of `optimizer` hold the same loss scale and counters.

        To be called by all of them, between updates. Under `OnDisagreement.REPAIR` every rank takes the state with the
        lowest scale, and False tells that it had to.

        Raises: DisagreementError where they differ, under `OnDisagreement.RAISE`.

        **Cost**: one all-gather of a few numbers and a host sync; for every few hundred steps, and after loading.
        """
        if not self._enabled:
            return True
        scale, _ = self._check_scale_growth_tracker("check_ranks")
        held = self._state()
        numbers = (held.scale, held.clean_steps, held.allowance, held.floor_overflows, *self._course.numbers())
        vector = torch.tensor(numbers, dtype=torch.float64, device=scale.device)
        agreement = self._agreements.of((optimizer,))
        settled = settle(agreement, vector, on_disagreement)
        if settled is not None:
            self._hold(State(settled[0], *(int(count) for count in settled[1:4])))
            self._course.take(*settled[4:])
        return settled is None
