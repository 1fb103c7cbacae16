"""Optimizers take their step or skip it together, and what was found is noted for the scale to follow and to report."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState

from mixprec._agreement import Agreements, Grouping
from mixprec._gradients import Clipping, Plans
from mixprec._kernels import Kernels, means_of
from mixprec._scaler._contract import Contract, SafeSkips, contract_of
from mixprec._scaler._guards import Guard, Watch, taken_by_scaler
from mixprec._scaler._held import HeldScale
from mixprec._scaler._phase import Outcome, Turn, deliver, largest, multiply, resolve, step_unscaled
from mixprec._scaler._refusals import SCALER_CONTRACT, refuse_closure, refuse_scaler_contract
from mixprec._scaler._reports import Reports
from mixprec.records import StepReason


class TakesSteps(HeldScale):
    """The part of a scaler that takes steps: what it knows of each optimizer, and what it does with their turns."""

    _guards: frozenset[Guard]
    _kernels: Kernels
    _process_group: Grouping

    _keeps_half = False
    """Whether float16 gradients of a plain optimizer are unscaled in float16 rather than refused."""

    def _know_nothing(self) -> None:
        """Starts without any optimizer known."""
        self._reports = Reports()
        self._safe_skips = SafeSkips()
        self._agreements = Agreements(self._process_group)
        self._plans = Plans()
        self._means = means_of(self._kernels if self._enabled else Kernels.FOREACH, self._device)
        self._one = torch.ones(())
        self._flag: Tensor | None = None
        self._watch = Watch(self._guards if self._enabled else frozenset())

    def _turn(self, optimizer: torch.optim.Optimizer) -> Turn:
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        flags = list(state["found_inf_per_device"].values())
        scaled = state["stage"] is OptState.READY
        recheck = not scaled and Guard.BROKEN_AFTER_UNSCALE in self._guards
        return Turn(optimizer, contract_of(optimizer), self._scale if scaled else None, flags, recheck)

    def _take(
        self, turns: list[Turn], max_norm: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[float | None]:
        """Takes or skips the step of all `turns`; what their `optimizer.step` returned."""
        simple = len(turns) == 1 and max_norm is None and not turns[0].recheck
        if simple and turns[0].contract is not Contract.FUSED:
            return [self._take_plain(turns[0].optimizer, turns[0].contract, args, kwargs)]
        divided: list[torch.optim.Optimizer] = []
        for turn in turns:
            refuse_scaler_contract(turn, max_norm)
            if turn.scale is not None:
                self._watch.before_division(turn.optimizer, divided)
                divided.append(turn.optimizer)
        outcome = self._judge(turns, max_norm)
        taking = [turn for turn in turns if turn.counts or len(turns) == 1]
        multiply(taking, outcome)
        for turn in taking:
            if turn.scale is None:
                self._per_optimizer_states[id(turn.optimizer)]["stage"] = OptState.UNSCALED
        with taken_by_scaler([turn.optimizer for turn in taking]):
            results = iter(deliver(taking, outcome, self._safe_skips, args, kwargs))
        for turn in turns:
            if turn.optimizer in divided:
                self._watch.divided(turn.optimizer)
            else:
                self._watch.stepped(turn.optimizer)
            reason = None if turn in taking else StepReason.NO_GRADIENTS
            self._finish(turn.optimizer, outcome.reading.found_inf, outcome.clipping, reason)
        return [next(results) if turn in taking else None for turn in turns]

    def _judge(self, turns: list[Turn], max_norm: float | None) -> Outcome:
        """Reads the gradients of `turns` and notes what was found in their states, for `update`.

        Raises: AssertionError if there is nothing to judge by and nobody else to hear from.
        """
        scale, _ = self._check_scale_growth_tracker("step")
        agreement = self._agreements.of([turn.optimizer for turn in turns])
        for turn in turns:
            turn.collect(agreement, self._plans, keep_half=self._keeps_half)
        heard = agreement.size > 1 or bool([turn for turn in turns if turn.counts])
        if not heard and not (len(turns) == 1 and turns[0].contract is Contract.FUSED):
            raise AssertionError("No inf checks were recorded for this optimizer.")
        below_one = self._current_rules().min_scale < 1.0
        outcome = resolve(
            turns,
            agreement,
            scale.device,
            max_norm,
            below_one=below_one,
            means=self._means,
            before=self._flag,
            needs_amax=self._course.needs_amax,
        )
        self._flag = outcome.flag if isinstance(outcome.reading.found_inf, float) else None
        self._course.note(outcome.reading.amax)
        for turn in turns:
            noted = {scale.device: outcome.flag} if heard else {}
            self._per_optimizer_states[id(turn.optimizer)]["found_inf_per_device"] = noted
        return outcome

    def _take_plain(
        self, optimizer: torch.optim.Optimizer, contract: Contract, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """As torch does it: unscale in place, look on the host, step. Or leave it all to torch's older contract."""
        state = self._per_optimizer_states[id(optimizer)]
        if contract is Contract.SCALER:
            warnings.warn(SCALER_CONTRACT, FutureWarning, stacklevel=4)
            with taken_by_scaler((optimizer,)):
                result = optimizer.step(*args, **{**kwargs, "grad_scaler": self})
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if len(state["found_inf_per_device"]) == 0:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            with taken_by_scaler((optimizer,)):
                result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        self._watch.stepped(optimizer)
        scale, _ = self._check_scale_growth_tracker("step")
        self._finish(optimizer, largest(state["found_inf_per_device"].values(), scale.device))
        return result

    def _finish(
        self,
        optimizer: torch.optim.Optimizer,
        found_inf: Tensor | float,
        clipping: Clipping | None = None,
        reason: StepReason | None = None,
    ) -> None:
        scale, _ = self._check_scale_growth_tracker("step")
        self._per_optimizer_states[id(optimizer)]["stage"] = OptState.STEPPED
        self._reports.add(optimizer, found_inf, scale, clipping, reason)

    def _take_unscaled(
        self, turns: list[Turn], max_norm: float | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[float | None]:
        """What a disabled scaler does: step whatever the gradients are, but clip if it is asked to."""
        outcome = None
        if max_norm is None:
            results = [turn.optimizer.step(*args, **kwargs) for turn in turns]
        else:
            refuse_closure(args, kwargs)
            for turn in turns:
                refuse_scaler_contract(turn, max_norm)
            agreement = self._agreements.of([turn.optimizer for turn in turns])
            results, outcome = step_unscaled(turns, agreement, self._plans, max_norm, self._means, args, kwargs)
        found, clipping = (0.0, None) if outcome is None else (outcome.reading.found_inf, outcome.clipping)
        for turn in turns:
            self._reports.add(turn.optimizer, found, self._one, clipping, StepReason.APPLIED)
        self._reports.close(self._one)
        return results

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_reports", "_safe_skips", "_agreements", "_plans", "_means", "_one", "_flag", "_watch"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._know_nothing()
