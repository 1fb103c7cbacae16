"""One attempt at an optimizer step, from the backward that fed it to the update of the scale after it.

Gradients are read where they are complete and untouched: before the first of unscale, clip and step. If they still
carry a loss scale then, what is recorded is divided by it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mixprec._trace import user_site
from mixprec.doctor._arm import OptimizerRecord, StepRecord
from mixprec.doctor._recorder._accumulation import Accumulation
from mixprec.doctor._recorder._modules import Modules
from mixprec.doctor._recorder._numbers import TINY, dtype_name, extents, global_norm, shares
from mixprec.doctor._recorder._quiet import quiet
from mixprec.doctor._recorder._sampled import Moved, Sampled, Stood, decay_lost, gradient_size
from mixprec.doctor._recorder._scene import Scene, scale_of
from mixprec.doctor._recorder._watches import HOOKED
from mixprec.records import Location

__all__ = ["Steps", "gradients_of", "parameters_of"]

_SETTINGS = ("lr", "eps", "betas", "momentum", "weight_decay", "fused")
"""Of an optimizer they are recorded as they were at its first step."""


LONGER = 3.0
"""Times the limit that patience lasts for at most."""


@dataclass
class _Attempt:
    """What is known of an attempt that is not written yet."""

    fields: dict[str, Any]
    sampled: Sampled | None = None
    norm_at_step: float | None = None
    applied: bool = False


@dataclass
class _Optimizer:
    """What is known of an optimizer."""

    site: Any
    attempts: int = 0
    had_gradient: set[int] = field(default_factory=set)
    orphans: int = 0
    finite_at_first: bool = True
    first: OptimizerRecord | None = None


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Every parameter, in order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Every gradient that there is, in order."""
    return [p.grad for p in parameters_of(optimizer) if p.grad is not None]


class Steps:
    """`limit` attempts of one optimizer (or four times as many in all) are enough: then `enough` is called.

    Where they took less than `patience` seconds it is as many as take so long, up to thrice the limit.
    """

    def __init__(
        self, scene: Scene, modules: Modules, limit: int, enough: Callable[[], None], patience: float = 0.0
    ) -> None:
        self._scene = scene
        self._modules = modules
        self._limit = limit
        self._patience = patience
        self._enough = enough
        self._known: dict[int, _Optimizer] = {}
        self._open: dict[int, _Attempt] = {}
        self._done: dict[int, _Attempt] = {}
        self._loss: dict[str, Any] = {}
        self._scaled_by: Any = None
        self._unscaled: set[int] = set()
        self._stale: dict[int, float] = {}
        self._stood: dict[int, Stood] = {}
        self._sizes: dict[int, float | None] = {}
        self.accumulation = Accumulation()
        self._fresh = True
        self._born = self._began = time.monotonic()

    # what leads to a step

    def created(self, optimizer: Optimizer) -> None:
        """An optimizer was built."""
        self._known[self._scene.optimizers.of(optimizer)] = _Optimizer(user_site(1))

    def backward(self, loss: dict[str, Any], scaler: Any) -> None:
        """A backward begins; `scaler` is the one that scaled the loss, None if none did."""
        alive = [optimizer for _, optimizer in self._scene.optimizers.alive()]
        with quiet():
            if self._fresh:
                self._fresh = False
                self._stale = {number: global_norm(gradients_of(o)) for number, o in self._scene.optimizers.alive()}
                self._stood = {number: Stood(o) for number, o in self._scene.optimizers.alive()}
            self.accumulation.begins(alive)
        self._loss = loss
        self._scaled_by = scaler

    def backward_done(self) -> None:
        """The backward is over; where a float16 region has no scaler, the script may scale by itself."""
        if self._scaled_by is None and self._loss.get("region") == "float16":
            with quiet():
                self._sizes = {number: gradient_size(o) for number, o in self._scene.optimizers.alive()}

    def _divided_by(self, number: int, optimizer: Optimizer) -> float | None:
        """By how much the script has divided the gradients since the last backward."""
        before = self._sizes.pop(number, None)
        after = gradient_size(optimizer) if before is not None else None
        return before / after if before is not None and after is not None else None

    def moved(self) -> list[tuple[int, str, Moved]]:
        """Of every optimizer whose weights the script has moved since the first backward of this iteration: its number,
        the state of its gradients, and how far the weights are now.
        """
        found = []
        for number, optimizer in self._scene.optimizers.alive():
            stood = self._stood.get(number)
            if stood is not None and not self._fresh:
                with quiet():
                    moved = stood.moved(optimizer)
                    if moved is not None:
                        self._stood[number] = Stood(optimizer)
                if moved is not None:
                    found.append((number, self.state(optimizer), moved))
        return found

    def touch(self, optimizer: Optimizer) -> None:
        """The optimizer's gradients are complete and about to be unscaled, clipped or used."""
        number = self._scene.optimizers.of(optimizer)
        if number not in self._open:
            self._write([number] if number in self._done else [])  # its scale was never updated
            if self._exhausted(number) and not self._extended(number):
                self._enough()  # and not at the end of the last one: another training may follow
            self._open[number] = _Attempt(self._read(optimizer, number))

    def _exhausted(self, number: int) -> bool:
        attempts = [known.attempts for known in self._known.values()]
        return self._about(number).attempts >= self._limit or sum(attempts) >= 4 * self._limit

    def _extended(self, number: int) -> bool:
        """Sets a later limit, once."""
        times, self._patience = self._patience / max(time.monotonic() - self._born, 1e-3), 0.0
        self._limit = int(self._limit * max(1.0, min(times, LONGER)))
        return not self._exhausted(number)

    def unscaled(self, optimizer: Optimizer) -> None:
        """The optimizer's gradients carry no scale any more."""
        self._unscaled.add(self._scene.optimizers.of(optimizer))

    def state(self, optimizer: Optimizer) -> str:
        """`scaled`, `unscaled` (by `unscale_`) or `plain` (they never were)."""
        if self._scene.optimizers.of(optimizer) in self._unscaled:
            return "unscaled"
        return "plain" if self._scaled_by is None else "scaled"

    def owners(self, parameters: Iterable[Tensor]) -> list[Optimizer]:
        """The optimizers that hold one of `parameters`."""
        ids = {id(p) for p in parameters}
        return [o for _, o in self._scene.optimizers.alive() if any(id(p) in ids for p in parameters_of(o))]

    def _read(self, optimizer: Optimizer, number: int) -> dict[str, Any]:
        """What a step record says of the gradients."""
        gradients = gradients_of(optimizer)
        scale = scale_of(self._scaled_by) if self._scaled_by is not None else None
        carried = scale if scale and number not in self._unscaled else 1.0
        low = TINY.get(getattr(torch, self._loss.get("region") or "", torch.float32), TINY[torch.float32])
        known = self._about(number)
        known.had_gradient.update(i for i, p in enumerate(parameters_of(optimizer)) if p.grad is not None)
        if not known.had_gradient:
            known.orphans = max(known.orphans, self._orphans(optimizer))
        with quiet():
            norm = global_norm(gradients) if gradients else None
            sizes = extents(gradients)
            share = shares(gradients, low)
            accumulated = self.accumulation.error(optimizer)
            divided = self._divided_by(number, optimizer)
            if not known.attempts:
                known.finite_at_first = all(map(math.isfinite, extents(parameters_of(optimizer))))
        return {
            "optimizer": number,
            "index": known.attempts,
            "site": user_site(1),
            "scale": scale,
            "carries": bool(scale) and number not in self._unscaled,
            "grad_norm": None if norm is None else norm / carried,
            "grad_amax": max(sizes) / carried
            if sizes and not any(map(math.isnan, sizes))
            else math.nan
            if sizes
            else None,
            "zero_share": share[0] if share else None,
            "subnormal_share": share[1] if share else None,
            "gradless": sum(p.grad is None for p in parameters_of(optimizer)),
            "lr": float(optimizer.param_groups[0]["lr"]) if "lr" in optimizer.param_groups[0] else None,
            "stale_grad_norm": self._stale.get(number),
            "micro_batches": self.accumulation.backwards,
            "accumulation_error": accumulated,
            "divided_by": divided,
        }

    def _orphans(self, optimizer: Optimizer) -> int:
        """Parameters with a gradient and without an optimizer, in models that have some of this one's."""
        own = {id(p) for p in parameters_of(optimizer)}
        held = {id(p) for _, other in self._scene.optimizers.alive() for p in parameters_of(other)}
        every = [list(root.parameters()) for root in self._modules.names.roots()]
        models = [parameters for parameters in every if any(id(p) in own for p in parameters)]
        return sum(p.grad is not None and id(p) not in held for parameters in models for p in parameters)

    def _about(self, number: int) -> _Optimizer:
        return self._known.setdefault(number, _Optimizer(user_site(1)))

    # the step

    def before(self, optimizer: Optimizer) -> None:
        """`optimizer.step` begins; where it is fused it may yet skip by itself."""
        self.touch(optimizer)
        number = self._scene.optimizers.of(optimizer)
        attempt = self._open[number]
        scale = getattr(optimizer, "grad_scale", None)
        with quiet():
            norm = global_norm(gradients_of(optimizer))
            attempt.norm_at_step = norm / float(scale) if scale is not None else norm
            attempt.sampled = Sampled(optimizer)
            attempt.fields["decay_lost_share"] = decay_lost(optimizer)
        found = getattr(optimizer, "found_inf", None)
        attempt.applied = found is None or not float(found)

    def stepped(self, optimizer: Optimizer) -> None:
        """`optimizer.step` returned."""
        number = self._scene.optimizers.of(optimizer)
        attempt = self._open.get(number)
        if attempt is None:
            return
        self._describe(number, optimizer)
        parameters = parameters_of(optimizer)
        with quiet():
            change = attempt.sampled.change() if attempt.sampled is not None else None
            sizes = extents(parameters)
            state = extents(_state(optimizer)) if self._thorough() or not all(map(math.isfinite, sizes)) else []
        attempt.sampled = None
        attempt.fields.update(
            update_ratio=change.ratio if change and attempt.applied else None,
            unchanged_share=change.unchanged if change and attempt.applied else None,
            weight_amax=max(filter(math.isfinite, sizes), default=None),
            weights_finite=all(map(math.isfinite, sizes)),
            state_finite=all(map(math.isfinite, state)),
        )

    def over(self, optimizer: Optimizer, scaler: Any = None) -> None:
        """The attempt is over; with a scaler, `update` will complete it."""
        number = self._scene.optimizers.of(optimizer)
        attempt = self._open.pop(number, None)
        if attempt is None:
            return
        flows = self._modules.turn()
        with quiet():
            buffers = extents(list(self._modules.buffers())) if self._thorough() or flows.bad_module else []
        now = time.monotonic()
        attempt.fields.update(
            iteration=self._scene.iteration,
            scaler=None if scaler is None else self._scene.scaler(scaler),
            loss=self._loss.get("value"),
            loss_dtype=self._loss.get("dtype"),
            loss_shape=self._loss.get("shape", ()),
            skipped=not attempt.applied,
            grad_norm_at_step=attempt.norm_at_step,
            buffers_finite=all(map(math.isfinite, buffers)),
            batch=flows.batch,
            batch_finite=flows.batch_finite,
            batch_amax=flows.batch_amax,
            first_bad_module=flows.bad_module,
            activation_zero_share=_mean(flows.zero_shares),
            activation_tiny_share=_mean(flows.tiny_shares),
            seconds=now - self._began,
            rank=self._scene.writer.rank,
        )
        self._began, self._fresh = now, True
        self.accumulation.ends()
        self._scene.turn()
        self._about(number).attempts += 1
        self._done[number] = attempt
        self._unscaled.discard(number)
        if scaler is None or not scaler.is_enabled():
            self._write([number])

    def updated(self, scaler: Any) -> None:
        """`scaler.update` returned."""
        number, after = self._scene.scaler(scaler), scale_of(scaler)
        mine = [key for key, attempt in self._done.items() if attempt.fields["scaler"] == number]
        for key in mine:
            self._done[key].fields["scale_after"] = after
        self._write(mine)

    def _write(self, numbers: list[int]) -> None:
        for number in numbers:
            self._scene.writer.record(StepRecord(**self._done.pop(number).fields))

    def _thorough(self) -> bool:
        return self._scene.iteration < 3 or self._scene.iteration % 10 == 0

    # records

    def _describe(self, number: int, optimizer: Optimizer) -> None:
        known = self._about(number)
        if known.first is None:
            known.first = self._record(number, optimizer)
            self._scene.writer.record(known.first)

    def _record(self, number: int, optimizer: Optimizer) -> OptimizerRecord:
        group = optimizer.param_groups[0] if optimizer.param_groups else {}
        parameters, owned = parameters_of(optimizer), self._modules.owned()
        ids = {id(p) for p in parameters}
        others = tuple(
            other
            for other, thing in self._scene.optimizers.alive()
            if other != number and any(id(p) in ids for p in parameters_of(thing))
        )
        hooks = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
        return OptimizerRecord(
            optimizer=number,
            kind=type(optimizer).__name__,
            site=self._about(number).site,
            fused=bool(group.get("fused")),
            lr=_number(group.get("lr")),
            eps=_number(group.get("eps")),
            betas=tuple(map(float, group["betas"])) if "betas" in group else None,
            momentum=_number(group.get("momentum")),
            weight_decay=_number(group.get("weight_decay")),
            parameter_dtypes=_by_dtype(parameters),
            state_dtypes=_by_dtype(t for t in _state(optimizer) if t.numel() > 1),
            finite_at_first=self._about(number).finite_at_first,
            parameters=len(parameters),
            parameters_of_model=sum(id(p) in owned for p in parameters),
            parameters_with_grad_ever=len(self._about(number).had_gradient),
            orphans=self._about(number).orphans,
            shared_with=others,
            step_hooks=len(hooks),
            hook_site=getattr(optimizer, HOOKED, Location()),
            rank=self._scene.writer.rank,
        )

    def close(self) -> None:
        """Writes attempts that were not completed and the last word on every optimizer."""
        for number, attempt in (*self._done.items(), *self._open.items()):
            rest = {} if "iteration" in attempt.fields else self._unfinished()
            self._scene.writer.record(StepRecord(**{**attempt.fields, **rest, "optimizer": number}))
        self._done, self._open = {}, {}
        for number, optimizer in self._scene.optimizers.alive():
            first, last = self._about(number).first, self._record(number, optimizer)
            settings = {name: getattr(first, name) for name in _SETTINGS} if first is not None else {}
            self._scene.writer.record(dataclasses.replace(last, **settings))

    def _unfinished(self) -> dict[str, Any]:
        return {
            "iteration": self._scene.iteration,
            "skipped": True,
            "finished": False,
            "loss": self._loss.get("value"),
            "loss_dtype": self._loss.get("dtype"),
            "loss_shape": self._loss.get("shape", ()),
            "rank": self._scene.writer.rank,
        }


def _state(optimizer: Optimizer) -> list[Tensor]:
    values = (value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values())
    return [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]


def _by_dtype(tensors: Iterable[Tensor]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        name = dtype_name(tensor.dtype)
        found[name] = found.get(name, 0) + tensor.numel()
    return found


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
