"""The loss scale and its counters are four small tensors under rules; they are set, saved and loaded here, checked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mixprec._gradients import host_number, on_host
from mixprec._loss_scale import Rules, State
from mixprec._scale_tensors import ScaleTensors, bound_
from mixprec._scaler._course import Course
from mixprec._scaler._floor import FloorLook
from mixprec._scaler._settings import checked_scale, read_state_dict, state_dict


class HeldScale(torch.amp.GradScaler):
    """The part of a scaler that holds the scale: torch's attributes, of which `Rules` and `State` are the other view.

    Set on enabled scalers only, as torch does: `_course`, `_allowance` and `_floor_overflows` (0-dim int32 tensors,
    None until the first `scale`), and their values before that, `_init_allowance` and `_init_floor_overflows`.
    """

    _course: Course
    _allowance: Tensor | None
    _floor_overflows: Tensor | None
    _init_allowance: int
    _init_floor_overflows: int
    _floor: FloorLook

    def _adopt(self, course: Course) -> None:
        rules = course.rules
        self._course = course
        self._growth_factor = rules.growth_factor
        self._backoff_factor = rules.backoff_factor
        self._growth_interval = rules.growth_interval

    def _current_rules(self) -> Rules:
        """The rules, with what was set through torch's private attributes."""
        now = (self._growth_factor, self._backoff_factor, self._growth_interval)
        rules = self._course.rules
        if now != (rules.growth_factor, rules.backoff_factor, rules.growth_interval):
            factor, backoff, interval = now
            self._course.change(growth_factor=factor, backoff_factor=backoff, growth_interval=interval)
        return self._course.rules

    def _hold(self, state: State) -> None:
        """Makes `state` the current one: in the tensors if they exist, else for when they come to be."""
        self._init_scale = state.scale
        self._init_growth_tracker = state.clean_steps
        self._init_allowance = state.allowance
        self._init_floor_overflows = state.floor_overflows
        self._floor = FloorLook(self._course.rules, state.floor_overflows)
        if self._scale is not None:
            _write(self._tensors(), None, state)

    def _state(self) -> State:
        """The current state. Cost: 1 host sync once the tensors exist."""
        if self._scale is not None:
            tensors = self._tensors()
            return _read(tensors) if on_host(tensors.scale) else tensors.read()
        return State(self._init_scale, self._init_growth_tracker, self._init_allowance, self._init_floor_overflows)

    def _lazy_init_scale_growth_tracker(self, dev: torch.device) -> None:
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale")
        tensors = ScaleTensors.start(self._current_rules(), dev, self._state())
        self._scale, self._growth_tracker = tensors.scale, tensors.clean_steps
        self._allowance, self._floor_overflows = tensors.allowance, tensors.floor_overflows

    def _tensors(self) -> ScaleTensors:
        """The tensors as they are now, also where code written for torch has put its own in `_scale`."""
        scale, tracker = self._check_scale_growth_tracker("update")
        if self._allowance is None or self._floor_overflows is None:
            fresh = ScaleTensors.start(self._course.rules, scale.device, self._initial_counts())
            self._allowance, self._floor_overflows = fresh.allowance, fresh.floor_overflows
        return ScaleTensors(scale, tracker, self._allowance, self._floor_overflows)

    def _initial_counts(self) -> State:
        return State(self._init_scale, 0, self._init_allowance, self._init_floor_overflows)

    # Moving --------------------------------------------------------------------------------------------------------

    def _advance(self, found_inf: Tensor) -> None:
        """Moves the scale past a step. Raises: LossScaleFloorError. Cost: small kernels; see `FloorLook`."""
        rules = self._current_rules()
        tensors = self._tensors()
        if on_host(tensors.scale) and on_host(found_inf):
            self._advance_on_host(tensors, host_number(found_inf) != 0.0)
            return
        self._course.advance_(tensors, found_inf)
        error = self._floor.updated(rules, tensors)
        if error is not None:
            raise error

    def _advance_on_host(self, tensors: ScaleTensors, found_inf: bool) -> None:
        """The specification itself, where its numbers are in reach; only what changes is written."""
        before = _read(tensors)
        _write(tensors, before, self._course.advance(before, found_inf))

    def _set_scale(self, new_scale: float | Tensor) -> None:
        """What `update(new_scale)` does. A tensor is brought within the bounds, since looking at it would be a sync."""
        scale, _ = self._check_scale_growth_tracker("update")
        rules, before = self._current_rules(), scale.clone()
        if not isinstance(new_scale, Tensor):
            scale.fill_(checked_scale("new_scale", new_scale, rules))
            self._course.rescale_(before, scale)
            return
        reason = (
            "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
            "torch.FloatTensor with requires_grad=False."
        )
        if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
            raise AssertionError(reason)
        scale.copy_(new_scale.reshape(()))
        scale.nan_to_num_(nan=rules.min_scale)
        bound_(rules, self._tensors())
        self._course.rescale_(before, scale)

    # Settings ------------------------------------------------------------------------------------------------------

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the growth factor. Raises: InvalidValueError unless it is a finite number above 1."""
        self._set(growth_factor=new_factor)

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the backoff factor. Raises: InvalidValueError unless it is between 0 and 1."""
        self._set(backoff_factor=new_factor)

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the growth interval; one below the clean steps so far makes the scale grow after the next clean step.

        Raises: InvalidValueError unless it is a whole number from 1.
        """
        self._set(growth_interval=new_interval)

    def _set(self, **change: Any) -> None:
        if self._enabled:
            self._current_rules()
            self._course.change(**change)
            self._adopt(self._course)
        else:
            for name, value in change.items():
                setattr(self, f"_{name}", value)

    # Saving and loading --------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state as torch's scaler saves it, loadable by either.

        A sixth key, `"mixprec"`, is there only under headroom rules, and while overflows are tolerated or counted at
        the floor; torch ignores it.
        """
        return state_dict(self._current_rules(), self._state(), *self._course.numbers()) if self._enabled else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what either scaler saved; all or nothing. A scale outside the bounds is brought within them.

        Headroom rules keep their own settings where classic rules saved theirs, and begin a new growth interval.

        Raises: RuntimeError for an empty dict, KeyError for a missing key, InvalidValueError for a value that cannot be
        a scaler's.
        """
        if not self._enabled:
            return
        saved = read_state_dict(self._current_rules(), state_dict)
        state = self._course.load(saved)
        self._adopt(self._course)
        self._hold(state)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._enabled:
            held = self._state()
            state["_init_allowance"], state["_init_floor_overflows"] = held.allowance, held.floor_overflows
            state["_allowance"] = state["_floor_overflows"] = None
            state["_floor"] = FloorLook(self._course.rules, held.floor_overflows)
        return state


def _read(tensors: ScaleTensors) -> State:
    """The state of tensors in the host's memory."""
    numbers: tuple[Any, ...] = (
        tensors.scale.tolist(),
        tensors.clean_steps.tolist(),
        tensors.allowance.tolist(),
        tensors.floor_overflows.tolist(),
    )
    return State(*numbers)


def _write(tensors: ScaleTensors, before: State | None, after: State) -> None:
    """Writes what differs between two states; all of `after` if `before` is not known."""
    if before is None or after.clean_steps != before.clean_steps:
        tensors.clean_steps.fill_(after.clean_steps)
    if before is None or after.scale != before.scale:
        tensors.scale.fill_(after.scale)
    if before is None or after.allowance != before.allowance:
        tensors.allowance.fill_(after.allowance)
    if before is None or after.floor_overflows != before.floor_overflows:
        tensors.floor_overflows.fill_(after.floor_overflows)
