"""A watch follows the calls of one scaler and raises or warns where the gradients cannot be what the caller thinks."""

from __future__ import annotations

import math
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mixprec._gradients import amax as largest_magnitude
from mixprec._gradients import collect, host_number, parameter_name, parameters, square_sum
from mixprec._scaler._guards import _direct_steps
from mixprec._scaler._guards._guard import Guard
from mixprec._scaler._guards._ledger import Ledger
from mixprec._scaler._guards._marks import sentinels_of
from mixprec._scaler._guards._reach import Reached
from mixprec.errors import MisuseError, MisuseWarning

LOOKS = 4
"""How often gradients that were changed in place are looked at, per optimizer, before the guard gives up."""


class Watch:
    """What one scaler has seen. Without guards that need it, it sees nothing and costs nothing."""

    def __init__(self, guards: frozenset[Guard]) -> None:
        self.guards = guards
        self._active = bool(guards - {Guard.BROKEN_AFTER_UNSCALE})
        self._ledgers: weakref.WeakKeyDictionary[torch.optim.Optimizer, Ledger] = weakref.WeakKeyDictionary()
        self._reached = Reached()
        self._scaled = False
        self._read = False
        self._in_backward = False
        self._generation = 0
        self._backwards = 0
        self._divided: list[torch.optim.Optimizer] = []
        if Guard.SCALED_STEP in guards:
            _direct_steps.watch(self)

    # Events --------------------------------------------------------------------------------------------------------

    def scale_used(self) -> None:
        """The scale was read, so that a loss may have been multiplied by hand, or gradients clipped at a multiple."""
        self._scaled = self._read = True

    def scaled(self, output: Tensor) -> None:
        """`output` carries the scale; its backward pass will be noticed. Cost: one Python hook."""
        self._scaled = True
        if self._active and output.requires_grad and not torch.compiler.is_compiling():
            output.register_hook(_on_backward(weakref.ref(self)))  # type: ignore[no-untyped-call] # torch's own
            if Guard.SCALED_STEP in self.guards:
                self._reached.expect(output.grad_fn)

    def backward_started(self) -> None:
        """Called inside a backward pass of a scaled output, before it fills any gradient."""
        self._backwards += 1
        self._in_backward = True
        self._reached.started()
        for ledger in self._ledgers.values():
            ledger.backward_started()

    def backward_ended(self) -> None:
        """Called when that pass has filled the gradients."""
        self._in_backward = False
        self._reached.ended()
        for ledger in self._ledgers.values():
            ledger.backward_ended(self._generation)

    def before_division(
        self, optimizer: torch.optim.Optimizer, alongside: Sequence[torch.optim.Optimizer] = ()
    ) -> None:
        """The scaler is about to unscale the gradients of `optimizer`, in one step with those `alongside`.

        Raises: MisuseError. Warns: MisuseWarning, each once per optimizer.
        """
        if not self._active:
            return
        ledger = self._ledger(optimizer)
        ledger.catch_up()
        if ledger.foreign is not None:
            self._refuse_unscaled(optimizer, ledger)
        if self._divided or alongside:
            self._refuse_second_division(optimizer, alongside)
        if ledger.mixed:
            self._warn(Guard.MISSING_ZERO_GRAD, "MP146", optimizer, ledger, _MIXED)
        if ledger.stale or (ledger.carries not in (None, self._generation) and not ledger.in_place):
            self._warn(Guard.SCALE_CHANGED, "MP008", optimizer, ledger, _STALE)
        if ledger.in_place and ledger.carries is not None and not self._read:
            self._look_for_clipping(optimizer, ledger)

    def divided(self, optimizer: torch.optim.Optimizer) -> None:
        """The gradients of `optimizer`, which `before_division` has seen, carry no scale any more."""
        if self._active:
            self._ledgers[optimizer].divided(self._backwards)
            self._divided.append(optimizer)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """The scaler took or skipped a step of `optimizer`."""
        if self._active:
            self._ledger(optimizer).stepped()

    def updated(self) -> None:
        """The scale may be another one now."""
        self._generation += 1
        self._scaled = self._read = False
        self._divided.clear()
        self._reached.forget()

    def refuse_direct_step(self, optimizer: torch.optim.Optimizer) -> None:
        """`optimizer.step()` was called by somebody else. Raises: MisuseError if its gradients are scaled."""
        if getattr(optimizer, "grad_scale", None) is not None:
            return  # the caller keeps the fused contract by hand
        ledger = self._ledgers.get(optimizer)
        if ledger is not None:
            ledger.catch_up()
            scaled = ledger.params_with_gradients() if ledger.carries is not None and not ledger.in_place else []
        else:
            scaled = [param for param in parameters(optimizer) if self._reached.holds(param)]
        if scaled:
            name = parameter_name(optimizer, scaled[0])
            raise MisuseError("MP003", name, _SCALED_STEP.format(kind=type(optimizer).__name__, name=name))

    # Findings ------------------------------------------------------------------------------------------------------

    def _ledger(self, optimizer: torch.optim.Optimizer) -> Ledger:
        count = sum([len(group["params"]) for group in optimizer.param_groups])
        ledger = self._ledgers.get(optimizer)
        if ledger is None or ledger.count != count:
            ledger = self._ledgers[optimizer] = Ledger(sentinels_of(parameters(optimizer)), count)
            if ledger.sentinels.params and Guard.UNSCALED_BACKWARD in self.guards:
                hook = _on_accumulation(weakref.ref(self), weakref.ref(ledger))
                handle = ledger.sentinels.params[0].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call] # torch's own
                weakref.finalize(ledger, handle.remove).atexit = False
        return ledger

    def accumulated(self, ledger: Ledger) -> None:
        """A backward pass has filled the first sentinel's gradient."""
        ledger.accumulated(foreign=not self._in_backward and not self._scaled)

    def _refuse_unscaled(self, optimizer: torch.optim.Optimizer, ledger: Ledger) -> None:
        if ledger.holds_foreign() and not self._scaled and Guard.UNSCALED_BACKWARD in self.guards:
            name = parameter_name(optimizer, ledger.sentinels.params[0])
            raise MisuseError("MP004", name, _UNSCALED.format(name=name))

    def _refuse_second_division(
        self, optimizer: torch.optim.Optimizer, alongside: Sequence[torch.optim.Optimizer]
    ) -> None:
        if Guard.SHARED_PARAMETER not in self.guards:
            return
        ledgers = {other: self._ledger(other) for other in self._divided}
        divided = [o for o, ledger in ledgers.items() if ledger.unscaled_at == self._backwards and ledger.untouched()]
        for other in (*divided, *alongside):
            if other is optimizer:
                continue
            owned = {id(param) for param in parameters(other)}
            for param in parameters(optimizer):
                if id(param) in owned and param.grad is not None:
                    name = parameter_name(optimizer, param)
                    raise MisuseError("MP028", name, _SHARED.format(name=name))

    def _look_for_clipping(self, optimizer: torch.optim.Optimizer, ledger: Ledger) -> None:
        """Warns if gradients that were changed in place have the norm or the maximum of an earlier time again."""
        guard = Guard.CLIP_BEFORE_UNSCALE
        if guard not in self.guards or guard.value in ledger.warned or len(ledger.looks) >= LOOKS:
            return
        gradients = collect(parameters(optimizer))
        norm = math.sqrt(host_number(square_sum(gradients, gradients.tensors[0].device)))
        look = (norm, largest_magnitude(gradients.tensors))
        if not all(math.isfinite(number) and number > 0.0 for number in look):
            return
        for seen in ledger.looks:
            for number, before, what in zip(look, seen, ("norm", "largest magnitude"), strict=True):
                if math.isclose(number, before, rel_tol=1e-5):
                    text = _CLIPPED.format(what=what, number=number, kind=type(optimizer).__name__)
                    self._warn(guard, "MP002", optimizer, ledger, text)
                    return
        ledger.looks.append(look)

    def _warn(self, guard: Guard, code: str, optimizer: torch.optim.Optimizer, ledger: Ledger, text: str) -> None:
        if guard not in self.guards or guard.value in ledger.warned:
            return
        ledger.warned.add(guard.value)
        with_gradients = ledger.params_with_gradients()
        name = parameter_name(optimizer, with_gradients[0]) if with_gradients else type(optimizer).__name__
        warnings.warn(MisuseWarning(code, name, text.format(name=name)), stacklevel=_stack_level())


def _on_backward(watch: weakref.ref[Watch]) -> Callable[[Tensor], None]:
    """A tensor hook: it runs as the backward pass begins, and has the engine call back as it ends."""

    def ended() -> None:
        alive = watch()
        if alive is not None:
            alive.backward_ended()

    def started(grad: Tensor) -> None:
        alive = watch()
        if alive is not None:
            alive.backward_started()
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    return started


def _on_accumulation(watch: weakref.ref[Watch], ledger: weakref.ref[Ledger]) -> Callable[[Tensor], None]:
    """A hook on one small parameter of an optimizer: it runs as a backward pass has filled its gradient."""

    def accumulated(param: Tensor) -> None:
        alive, known = watch(), ledger()
        if alive is not None and known is not None:
            alive.accumulated(known)

    return accumulated


def _stack_level() -> int:
    """How far up the caller is who is not in this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mixprec."):
        level, frame = level + 1, frame.f_back
    return level


_UNSCALED = (
    "The gradient of {name} comes from the backward pass of a loss that was not scaled: scale() was not called since "
    "the last update(). Unscaling it would divide it by the loss scale for nothing. Write "
    "scaler.scale(loss).backward(), in every iteration."
)
_SCALED_STEP = (
    "{kind}.step() was called on gradients that still carry the loss scale, such as that of {name}; the step would be "
    "too large by that factor. Write scaler.step(optimizer), or call scaler.unscale_(optimizer) before."
)
_SHARED = (
    "{name} belongs to two optimizers, and its gradient was unscaled with the other one already; unscaling it again "
    "would divide it by the loss scale twice. Give each parameter to one optimizer."
)
_MIXED = (
    "Scaled gradients, such as that of {name}, were added to gradients that the last step had unscaled already. Call "
    "optimizer.zero_grad() between a step and the next backward pass."
)
_STALE = (
    "update() ran between the backward pass that made the gradient of {name} and the step that uses it, so it may "
    "carry another loss scale than it is divided by. Call update() once per step, after it."
)
_CLIPPED = (
    "The scaled gradients of {kind} were changed in place, and have the {what} {number:.6g} as they had before: they "
    "are clipped while they carry the loss scale. Call scaler.unscale_(optimizer) first, or pass "
    "scaler.step(optimizer, max_norm=...)."
)
