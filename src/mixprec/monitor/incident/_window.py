"""A window is what one optimizer step is made of: from the end of the step before to the moment that decides this one.

It opens when the step before has ended and holds the calls of top-level modules and the loaded batches by reference.
It is judged once, before anything is changed: at `update` of a scaler, at `step` of an optimizer without one or with a
loss that is not finite, when gradients that were never used are cleared, or at the next call after a loss that the
script tested and left. Then the step is over. The same windows are counted when a step is recorded and when it is
replayed.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from mixprec._taps import Listener, listen
from mixprec.monitor._numbers import Flight
from mixprec.monitor.incident._checks import Checks
from mixprec.monitor.incident._compiled import CompiledCalls
from mixprec.monitor.incident._late import far, finite_flag
from mixprec.monitor.incident._moment import Call, Moment
from mixprec.monitor.incident._random import RandomStates

__all__ = ["Windows"]

_LIMIT = 64
"""Calls that a window holds at most: where nothing ever ends one, references must not pile up."""


@dataclass
class _SoFar:
    """What has happened in the open window.

    `finished` calls have had their backward, `unfinished`: the last has not. `told`: a scaler has told the loss that
    backward is about to be called on. `scaled`: an enabled scaler takes part. `finite`: of losses on a device, on its
    way. `turns`: optimizers, by id, that the scaler was asked to step, `stepping`: those that began to, and whether
    they decide on their device.
    """

    losses: list[Tensor] = field(default_factory=list)
    finite: list[Flight] = field(default_factory=list)
    turns: set[int] = field(default_factory=set)
    stepping: dict[int, bool] = field(default_factory=dict)
    copied: list[nn.Module] = field(default_factory=list)
    tested: Tensor | float | None = None
    at_call: RandomStates | None = None
    finished: int = 0
    scaled: bool = False
    told: bool = False
    unfinished: bool = False
    judged: bool = False


class Windows(Listener):
    """Follows windows. Subclasses override `opened`, `judged` and `closed`.

    **Cost** per step: the random states, references to the calls' arguments, a copy of the buffers that the forward
    changes (batch norm), and a small copy of whether the loss is finite, for which the host waits before the optimizer
    steps: until the forward is done, while backward is still queued on the device.
    """

    def __init__(self, models: tuple[nn.Module, ...] = ()) -> None:
        self.step = 0
        self.moment = Moment("", 0)
        self._roots: weakref.WeakKeyDictionary[nn.Module, _Buffers] = weakref.WeakKeyDictionary()
        self._parts: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._compiled: CompiledCalls | None = None
        for model in models:
            self._learn(model)
        self._open(None)

    # for subclasses

    def opened(self) -> None:
        """A window's first call is about to run."""

    def calling(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A top-level module is about to be called in training; it has been added to `moment.calls`."""

    def looking(self) -> contextlib.AbstractContextManager[Any]:
        """Around the ops by which a window is judged, which are no part of the step."""
        return contextlib.nullcontext()

    def judged(self, kind: str | None) -> None:
        """The window is complete and nothing has changed yet: `skipped`, `loss`, or None where all is well."""

    def postponed(self, flags: tuple[Tensor, ...], losses: tuple[Tensor, ...]) -> bool:
        """Asked when only the device knows whether the step was skipped: whether the window is judged later.

        Where not, `flags` are waited for.
        """
        return False

    def settled(self) -> None:
        """An optimizer is about to step, or the run ends: what was postponed has to be judged now."""

    def closed(self) -> None:
        """The step is over; random states are those that the next window begins with."""

    # what is heard

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Notes the call of a top-level module in training."""
        if self._compiled is not None and id(module) in self._compiled.inside:
            return
        if module in self._parts or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if torch._C._current_autograd_node() is not None:  # a recompute
            return
        if module not in self._roots and not self._learn(module):
            return
        if self._left_out_untried():
            self._close()
        self._so_far.at_call = RandomStates.now()
        if not self.moment.calls:
            self.moment.at_forward = self._so_far.at_call
            self.opened()
        self._copy_buffers(module)
        kwargs = kwargs or _kwargs_of_call()
        number = list(self._roots).index(module)
        if len(self.moment.calls) >= _LIMIT:
            self.moment.calls = self.moment.calls[1:]
            self.moment.notes = [f"more than {_LIMIT} calls since the last step: the first are left out"]
        self.moment.calls += (Call(number, args, kwargs),)
        self._so_far.unfinished = True
        self.calling(module, args, kwargs)

    def batch_loaded(self, iterator: Any, batch: Any) -> None:
        """Notes what a loader handed out."""
        self.moment.loaded = (*self.moment.loaded, batch)[-_LIMIT:]

    def region_entered(self, region: torch.autocast) -> None:
        """Notes the first autocast region of the window."""
        if self.moment.region is None:
            policy = getattr(region, "policy", None)
            self.moment.region = {
                "device": region.device,
                "dtype": str(region.fast_dtype).removeprefix("torch."),
                "enabled": bool(region._enabled),
                "policy": None if policy is None else str(policy),
            }

    def before_scale(self, scaler: Any, outputs: Any) -> None:
        """Notes the loss before it is multiplied."""
        if scaler.is_enabled():
            self._so_far.scaled = True
            self.moment.scaler = scaler
        self._so_far.told = True
        self._note_losses((outputs,) if isinstance(outputs, Tensor) else tuple(outputs))

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        """Notes the loss where no scaler has seen it."""
        self._so_far.unfinished = False
        self._so_far.finished = len(self.moment.calls)
        if not self._so_far.told:
            self._note_losses(outputs)
        self._so_far.told = False

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """Notes who steps under a scaler."""
        self.settled()
        self._add(optimizer)
        if scaler.is_enabled():
            self._so_far.scaled = True
            self._so_far.turns.add(id(optimizer))
            self.moment.scaler = scaler

    def before_step(self, optimizer: Optimizer) -> None:
        """Judges the window where no scaler does."""
        self.settled()
        self._add(optimizer)
        bad = not self._so_far.judged and self._bad_loss()
        if not self._so_far.scaled:
            self._judge("loss" if bad else None)
            return
        flag = getattr(optimizer, "found_inf", None)  # a fused optimizer's, which decides by it
        self._so_far.stepping[id(optimizer)] = flag is not None
        if bad and not (isinstance(flag, Tensor) and float(flag) > 0):
            self._judge("loss")  # a scaler looks at gradients alone: this step is taken

    def stepped(self, optimizer: Optimizer) -> None:
        """Without a scaler the step is over."""
        if not self._so_far.scaled:
            self._close()

    def gradients_cleared(self, owner: Any) -> None:
        """Judges a step whose gradients were made and are thrown away: a script with a scaler of its own skipped it."""
        if self._so_far.scaled or not self._so_far.losses:
            return
        later, at_call = self.moment.calls[self._so_far.finished :], self._so_far.at_call
        self.moment.calls = self.moment.calls[: self._so_far.finished]
        self._judge("loss" if self._bad_loss() else None)
        self._close()
        if later:
            self.moment.calls, self.moment.at_forward = later, at_call
            self._so_far.unfinished = True

    def before_update(self, scaler: Any, new_scale: Any) -> None:
        """Judges the window by what the scaler found."""
        if not scaler.is_enabled() or self._so_far.judged:
            return
        self.moment.scaler = scaler
        if self._all_stepped():
            self._judge(None)
            return
        flags = _flags(scaler)
        by_device = any(self._so_far.stepping.values()) and self._so_far.turns == self._so_far.stepping.keys()
        if by_device and far(flags) and self.postponed(flags, tuple(self._so_far.losses)):
            self._complete("")
            self._note_who_stepped()
            return
        with self.looking():
            found = any(float(flag) > 0 for flag in flags)
        self._judge("skipped" if found else None)

    def _all_stepped(self) -> bool:
        """Whether the host let every optimizer step that was asked to: then nothing was found, and nothing is read."""
        so_far = self._so_far
        return bool(so_far.turns) and so_far.turns == so_far.stepping.keys() and not any(so_far.stepping.values())

    def updated(self, scaler: Any, new_scale: Any) -> None:
        """The step is over."""
        if scaler.is_enabled():
            self._close()

    def tested(self, number: Tensor | float) -> None:
        """The script asked whether a number is finite (see `Checks`)."""
        self._so_far.tested = number

    def finish(self) -> None:
        """The run ends: a step that was not taken is judged."""
        self.settled()
        if not self._left_out_untried() and not self._so_far.scaled and self._so_far.losses and self._bad_loss():
            self._judge("loss")

    @contextlib.contextmanager
    def hearing(self, checks: bool) -> Iterator[None]:
        """Hears the whole process inside the block; with `checks` also the tests of losses (see `Checks`)."""
        self._compiled = CompiledCalls(self.before_forward)
        with contextlib.ExitStack() as stack:
            stack.callback(self._compiled.remove)
            stack.enter_context(listen(self))
            if checks:
                stack.callback(Checks(self.tested).remove)
            yield

    # what follows from it

    def _left_out_untried(self) -> bool:
        """Whether the script tested a loss, found it not finite and called neither backward nor step; judges that."""
        tested = self._so_far.tested
        if not self._so_far.unfinished or tested is None or self._so_far.judged:
            return False
        with self.looking():
            if math.isfinite(float(tested)):
                return False
            self._so_far.losses = [tested if isinstance(tested, Tensor) else torch.tensor(tested)]
        self.moment.notes.append("the script tested this loss and left the step out")
        self._judge("loss")
        return True

    def _judge(self, kind: str | None) -> None:
        if self._so_far.judged:
            return
        self._complete(kind or "")
        if kind == "skipped":
            self._note_who_stepped()
        if kind is not None:
            self.read()
        self.judged(kind)

    def _complete(self, kind: str) -> None:
        self._so_far.judged = True
        moment = self.moment
        moment.kind, moment.time, moment.roots = kind, time.time(), tuple(self._roots)
        moment.buffers = tuple(buffers.by_name() for buffers in self._roots.values())

    def _note_who_stepped(self) -> None:
        """Of several optimizers under one scaler, some may step while others skip."""
        for optimizer in self.moment.optimizers:
            if self._so_far.stepping.get(id(optimizer)) is False:
                name = type(optimizer).__name__
                self.moment.notes.append(f"an {name} stepped all the same: its weights are those after its step")

    def read(self) -> None:
        """Puts losses and loss scale into the moment. **Cost** a sync."""
        self.moment.losses = self.losses()
        scaler = self.moment.scaler
        self.moment.scale = None if scaler is None else float(scaler.get_scale())

    def _close(self) -> None:
        if self.moment.calls:  # a second optimizer's step belongs to the step that the first has closed
            self.step += 1
        self._open(RandomStates.now())
        self.closed()

    def _open(self, before: RandomStates | None) -> None:
        self.moment = Moment("", self.step, before=before)
        self._so_far = _SoFar()

    def _note_losses(self, outputs: tuple[Tensor, ...]) -> None:
        losses = [output.detach() for output in outputs if isinstance(output, Tensor)]
        self._so_far.losses += losses
        if far(losses):
            with self.looking():
                self._so_far.finite += [finite_flag(loss) for loss in losses]

    def losses(self) -> tuple[float, ...]:
        """The losses of the window so far. **Cost** one sync."""
        with self.looking():
            return tuple(float(loss.float().mean()) for loss in self._so_far.losses)

    def _bad_loss(self) -> bool:
        """Whether a loss is not finite. **Cost** where losses are on a device: waits until the forward is done."""
        if len(self._so_far.finite) == len(self._so_far.losses):
            return not all(all(flight.read()["finite"]) for flight in self._so_far.finite)
        with self.looking():
            return not all(_finite(loss) for loss in self._so_far.losses)

    def _add(self, optimizer: Optimizer) -> None:
        if optimizer not in self.moment.optimizers:
            self.moment.optimizers += (optimizer,)

    def _learn(self, module: nn.Module) -> bool:
        """Takes a module that is called from no other known one as a root, if it has anything to save."""
        inner = [part for part in module.modules() if part is not module]
        if next(module.parameters(), None) is None:
            self._parts.add(module)
            return False
        self._roots[module] = _Buffers(module)
        for part in inner:
            self._parts.add(part)
            self._roots.pop(part, None)
        return True

    def _copy_buffers(self, root: nn.Module) -> None:
        """Copies the buffers that this step's forward may change, once per window."""
        if root not in self._so_far.copied:
            self._so_far.copied.append(root)
            self._roots[root].copy()


class _Buffers:
    """The buffers of a root as they were, copied only where they may have changed.

    Batch norm's kernels write their statistics without counting a version, so those are copied every time.
    """

    def __init__(self, root: nn.Module) -> None:
        self._places = [
            (f"{path}.{name}".lstrip("."), weakref.ref(module), name)
            for path, module in root.named_modules()
            for name in module._buffers
        ]
        self._copies: dict[str, tuple[int, Tensor]] = {}

    def copy(self) -> None:
        """Notes the buffers as they are now. **Cost** a copy of each that may have changed since the last time."""
        for path, owner, name in self._places:
            module = owner()
            buffer = None if module is None else module._buffers.get(name)
            if buffer is None:
                continue
            known = self._copies.get(path)
            if isinstance(module, _NormBase) or known is None or known[0] != buffer._version:
                self._copies[path] = (buffer._version, buffer.detach().clone())

    def by_name(self) -> dict[str, Tensor]:
        """The copies by the names that `named_buffers` gives them."""
        return {path: copy for path, (_, copy) in self._copies.items()}


def _kwargs_of_call() -> dict[str, Any]:
    """Keyword arguments of the module call that this runs in: torch hands none to hooks on all modules.

    They are read off the frame that runs the hooks, of `Module._call_impl`
    (https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/module.py). Hooks on the module itself would get
    them, but would be copied and pickled with it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("inner", "_call_impl") and frame.f_code.co_filename.endswith("module.py"):
            found = frame.f_locals.get("kwargs")
            return found if isinstance(found, dict) else {}
        frame = frame.f_back
    return {}


def _finite(loss: Tensor) -> bool:
    return math.isfinite(loss.item()) if loss.numel() == 1 else bool(torch.isfinite(loss).all())


def _flags(scaler: Any) -> tuple[Tensor, ...]:
    """What says of each optimizer's gradients whether they held Inf or NaN."""
    states = getattr(scaler, "_per_optimizer_states", {}).values()
    return tuple(torch.as_tensor(flag) for state in states for flag in state["found_inf_per_device"].values())
