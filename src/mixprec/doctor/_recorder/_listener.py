"""Every tap of a script, told to the parts of the recorder that it concerns."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._script import child
from mixprec._taps import Listener
from mixprec._trace import user_site
from mixprec.doctor._arm import ScalerRecord
from mixprec.doctor._recorder._crash import crash_of
from mixprec.doctor._recorder._events import Events
from mixprec.doctor._recorder._graph import nodes_under
from mixprec.doctor._recorder._matched import matched
from mixprec.doctor._recorder._modules import Modules
from mixprec.doctor._recorder._numbers import dtype_name, first_tensors, global_norm
from mixprec.doctor._recorder._owners import PLAIN, Owners
from mixprec.doctor._recorder._quiet import quiet
from mixprec.doctor._recorder._regions import Regions
from mixprec.doctor._recorder._scene import Scene, region_dtype, scale_of
from mixprec.doctor._recorder._steps import Steps, parameters_of
from mixprec.doctor._recorder._watches import LEAF, Threads, as_fact, nan_filter

__all__ = ["Recorder", "peak_bytes"]

FAR = 0.5
"""Norm of a move over norm of the weights from which on the weights are elsewhere."""
REACH = 200
"""Autograd nodes looked at between a loss and the scaled loss that it was made of."""


class Recorder(Listener):
    """Records until `limit` attempts at a step were made, or more where `patience` lasts; then `enough` is called."""

    def __init__(self, scene: Scene, limit: int, enough: Callable[[], None], patience: float = 0.0) -> None:
        self.scene = scene
        self.events = Events(scene)
        self.regions = Regions(scene, self.events.tell)
        self.modules = Modules(scene, self.regions, self._forward_began)
        self.owners = Owners()
        self.steps = Steps(scene, self.modules, limit, enough, patience)
        self.threads = Threads(scene.writer)
        self._scaled: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._stepping: dict[int, Any] = {}
        self._loss: dict[str, Any] = {}
        self._stuck: weakref.WeakSet[Any] = weakref.WeakSet()
        self._problems = 0

    @staticmethod
    def _deaf() -> bool:
        """Data workers and compilers are not listened to."""
        return torch.compiler.is_compiling() or child.in_worker()

    def failed(self, event: str, error: Exception) -> None:
        """A part of the recorder broke: noted, so that nothing is concluded from what is missing."""
        self._problems += 1
        if self._problems <= 3:
            self.scene.writer.fact(f"recorder_failed_{event}", f"{type(error).__name__}: {error}"[:500])

    # scaler

    def scaler_created(self, scaler: Any) -> None:
        number = self.scene.scalers.of(scaler)
        self.scene.writer.record(
            ScalerRecord(
                scaler=number,
                kind=type(scaler).__name__,
                site=user_site(),
                enabled=scaler.is_enabled(),
                init_scale=scale_of(scaler),
                growth_interval=getattr(scaler, "_growth_interval", None),
                growth_factor=getattr(scaler, "_growth_factor", None),
                backoff_factor=getattr(scaler, "_backoff_factor", None),
                rank=self.scene.writer.rank,
            )
        )
        self.events.tell("scaler_created", scaler=number, enabled=scaler.is_enabled())

    def before_scale(self, scaler: Any, outputs: Any) -> None:
        self._loss = _loss_of(first_tensors(outputs))

    def scaled(self, scaler: Any, outputs: Any, result: Any) -> None:
        self.events.tell(
            "scale", scaler=self.scene.scalers.of(scaler), enabled=scaler.is_enabled(), **_told(self._loss)
        )
        if not scaler.is_enabled():
            return
        for tensor in first_tensors(result):
            if tensor.grad_fn is not None:
                self._scaled[tensor.grad_fn._sequence_nr()] = (scaler, self._loss)

    def before_unscale(self, scaler: Any, optimizer: Optimizer, by_step: bool) -> None:
        if scaler.is_enabled():
            self.steps.touch(optimizer)
        self._about(
            "unscale", scaler, optimizer, by_step=by_step, explicit=not by_step, state=self.steps.state(optimizer)
        )

    def unscaled(self, scaler: Any, optimizer: Optimizer, by_step: bool) -> None:
        if scaler.is_enabled():
            self.steps.unscaled(optimizer)

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        number = self.scene.optimizers.of(optimizer)
        carried = self.owners.carried(number)
        own, scaled = self.scene.scaler(scaler), [one for one in carried if one != PLAIN]
        self._about(
            "scaler_step",
            scaler,
            optimizer,
            state=self.steps.state(optimizer),
            carried=scaled,
            foreign=bool(scaled) and own not in scaled,
            mixed=own in scaled and PLAIN in carried,
        )
        self._stepping[self.scene.optimizers.of(optimizer)] = scaler
        self.steps.touch(optimizer)

    def scaler_stepped(self, scaler: Any, optimizer: Optimizer, result: Any) -> None:
        self._stepping.pop(self.scene.optimizers.of(optimizer), None)
        self.steps.over(optimizer, scaler)
        self.owners.cleared(self.scene.optimizers.of(optimizer))

    def before_update(self, scaler: Any, new_scale: Any) -> None:
        self._before_update = scale_of(scaler)

    def updated(self, scaler: Any, new_scale: Any) -> None:
        scale = scale_of(scaler)
        self.events.tell(
            "update",
            scaler=self.scene.scalers.of(scaler),
            enabled=scaler.is_enabled(),
            scale_before=self._before_update,
            scale=scale,
            changed=scale != self._before_update,
            given=new_scale is not None,
        )
        self.steps.updated(scaler)
        self._count_beyond_interval(scaler)

    def _count_beyond_interval(self, scaler: Any) -> None:
        """Where the count of clean steps equals the interval, torch grows the scale: beyond it, it never does."""
        tracker, interval = getattr(scaler, "_growth_tracker", None), getattr(scaler, "_growth_interval", None)
        if not scaler.is_enabled() or not isinstance(tracker, Tensor) or interval is None or scaler in self._stuck:
            return
        if (count := int(tracker.item())) > interval:
            self._stuck.add(scaler)
            self.events.tell("growth_missed", scaler=self.scene.scalers.of(scaler), count=count, interval=int(interval))

    def scale_read(self, scaler: Any, scale: float) -> None:
        self.events.tell("scale_read", scaler=self.scene.scalers.of(scaler), scale=float(scale))

    def scaler_saved(self, scaler: Any, state: dict[str, Any]) -> None:
        self.events.tell("scaler_saved", scaler=self.scene.scalers.of(scaler), empty=not state)

    def scaler_restored(self, scaler: Any, state: dict[str, Any]) -> None:
        self.events.tell(
            "scaler_restored", scaler=self.scene.scalers.of(scaler), empty=not state, scale=scale_of(scaler)
        )

    # optimizer and scheduler

    def optimizer_created(self, optimizer: Optimizer) -> None:
        self.steps.created(optimizer)
        self.events.tell("optimizer_created", optimizer=self.scene.optimizers.of(optimizer))

    def before_step(self, optimizer: Optimizer) -> None:
        if self._deaf():
            return
        number = self.scene.optimizers.of(optimizer)
        self.steps.before(optimizer)
        self.events.tell(
            "step", optimizer=number, by_scaler=number in self._stepping, state=self.steps.state(optimizer)
        )

    def stepped(self, optimizer: Optimizer) -> None:
        if self._deaf():
            return
        self.regions.stepped()
        self.steps.stepped(optimizer)
        if self.scene.optimizers.of(optimizer) not in self._stepping:
            self.steps.over(optimizer)

    def gradients_cleared(self, owner: Optimizer | nn.Module) -> None:
        is_optimizer = isinstance(owner, Optimizer)
        if is_optimizer:
            self.owners.cleared(self.scene.optimizers.of(owner))
        else:
            self._cleared_in(owner)
        self.events.tell(
            "zero_grad", optimizer=self.scene.optimizers.of(owner) if is_optimizer else None, of_module=not is_optimizer
        )

    def _cleared_in(self, module: Any) -> None:
        """A module's gradients were cleared, and so were those of optimizers of nothing but its parameters."""
        held = {id(p) for p in module.parameters()}
        for number, optimizer in self.scene.optimizers.alive():
            if all(id(p) in held for p in parameters_of(optimizer)):
                self.owners.cleared(number)

    def optimizer_restored(self, optimizer: Optimizer) -> None:
        self.events.tell("optimizer_restored", optimizer=self.scene.optimizers.of(optimizer))

    def scheduler_created(self, scheduler: Any) -> None:
        self.events.tell("scheduler_created", optimizer=self._of_scheduler(scheduler), of=type(scheduler).__name__)

    def scheduler_stepped(self, scheduler: Any) -> None:
        self.events.tell("scheduler_step", optimizer=self._of_scheduler(scheduler), of=type(scheduler).__name__)

    def _of_scheduler(self, scheduler: Any) -> int | None:
        optimizer = getattr(scheduler, "optimizer", None)
        return self.scene.optimizers.of(optimizer) if isinstance(optimizer, Optimizer) else None

    # gradients

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        scaler, loss = self._origin(outputs)
        if scaler is None:
            loss = _loss_of(list(outputs))
        elif outputs and outputs[0].numel() == 1:
            scale, value = scale_of(scaler), _value_of(outputs[0])
            loss = {**loss, "value": value / scale if scale else value}
        loss["region"] = loss.get("region") or self._last_region
        if scaler is not None:
            self._scaled.clear()
            if self.scene.locator is not None:
                self.scene.locator.scale = scale_of(scaler)
        for number, state, moved in self.steps.moved():
            ratio = moved.ratio
            far, finite = ratio is None or ratio > FAR, ratio is not None
            self.events.tell("weights_moved", optimizer=number, state=state, finite=finite, far=far, ratio=ratio)
        if self._filter is None and not math.isfinite(loss.get("value", 0.0)):
            self._filter = nan_filter()
            if self._filter is not None:
                self.scene.writer.fact("nan_filter", as_fact(user_site()))
        self.regions.differentiated(outputs)
        self.steps.backward(loss, scaler)
        self.owners.begins(self.scene.optimizers.alive())
        self._through = None if scaler is None else self.scene.scaler(scaler)
        self.events.tell(
            "backward",
            scaler=None if scaler is None else self.scene.scalers.of(scaler),
            of_scale=scaler is not None,
            in_region=region_dtype(),
            **_told(loss),
            **_made_at(outputs),
        )

    _last_region: str | None = None
    _through: int | None = None
    _filter: str | None = None

    def _origin(self, outputs: tuple[Tensor, ...]) -> tuple[Any, dict[str, Any]]:
        """The scaler that scaled what is differentiated, and the loss it was given; (None, {}) if none did."""
        nodes = [t.grad_fn for t in outputs if t.grad_fn is not None]
        seen = 0
        while nodes and seen < REACH and self._scaled:
            node = nodes.pop(0)
            seen += 1
            found = self._scaled.get(node._sequence_nr())
            if found is not None:
                return found
            nodes += [after for after, _ in node.next_functions if after is not None]
        return None, {}

    def backward_done(self, outputs: tuple[Tensor, ...]) -> None:
        alive = self.scene.optimizers.alive()
        self.owners.ends(alive, self._through)
        self.steps.backward_done()
        if alive:
            return
        for root in self.modules.names.roots():
            gradients = [p.grad for p in root.parameters() if p.grad is not None]
            if gradients:
                with quiet():
                    norm = global_norm(gradients)
                self.events.tell(
                    "backward_done", of=type(root).__name__, norm=norm, gradients_finite=math.isfinite(norm)
                )

    def differentiated(self, outputs: tuple[Tensor, ...], create_graph: bool) -> None:
        scaler, _ = self._origin(outputs)
        self.events.tell("grad", of_scale=scaler is not None, create_graph=create_graph, in_region=region_dtype())

    def before_clip(self, parameters: tuple[Tensor, ...], limit: float, by: str) -> None:
        self._clipping = self.steps.owners(parameters)
        for optimizer in self._clipping:
            self.steps.touch(optimizer)

    _clipping: list[Optimizer] = []  # noqa: RUF012 - replaced, never changed

    def clipped(self, parameters: tuple[Tensor, ...], limit: float, by: str, total_norm: Tensor | None) -> None:
        norm = None if total_norm is None else float(total_norm)
        owners: list[Optimizer | None] = [*self._clipping]
        for optimizer in owners or [None]:
            self.events.tell(
                "clip",
                optimizer=None if optimizer is None else self.scene.optimizers.of(optimizer),
                state="plain" if optimizer is None else self.steps.state(optimizer),
                by=by,
                limit=float(limit),
                norm=norm,
                finite=norm is None or math.isfinite(norm),
            )

    # autocast

    def region_entered(self, region: torch.autocast) -> None:
        if self._deaf():
            return
        self.regions.entered(region)
        if region._enabled:
            self._last_region = dtype_name(region.fast_dtype)
        self.events.tell(
            "region_entered",
            dtype=dtype_name(region.fast_dtype),
            enabled=bool(region._enabled),
            device=region.device,
        )

    def region_left(self, region: torch.autocast) -> None:
        if not self._deaf():
            self.regions.left(region)

    # modules

    def before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._deaf():
            self.modules.before(module, args)

    def forward_done(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not self._deaf():
            self.modules.done(module, args, kwargs, output)

    def _forward_began(self, kind: str, **data: Any) -> None:
        if self.scene.locator is not None and self.scene.locator.model is None:
            self.scene.locator.model = next(iter(self.modules.names.roots()), None)
        self.threads.calls_module()
        self.events.tell("forward_begin", of=kind, **data)

    def weights_restored(self, module: nn.Module, state: Any, result: Any) -> None:
        self.events.tell("weights_restored", of=type(module).__name__, **matched(module, state, result))

    def converted(self, module: nn.Module, dtype: torch.dtype) -> None:
        name, holds = dtype_name(dtype), any(p.is_floating_point() for p in module.parameters())
        self.events.tell("converted", dtype=name, of=type(module).__name__, parameters=holds)
        if holds and dtype in (torch.float16, torch.bfloat16):
            site = user_site()
            self.scene.writer.uncontrolled(f"parameters are made {name} by the script ({site.file}:{site.line})")

    # files

    def file_saved(self, value: Any) -> None:
        self.events.tell("file_saved", keys=_keys(value))

    def file_loaded(self, value: Any) -> None:
        self.events.tell("file_loaded", keys=_keys(value))

    # the end

    def crashed(self, error: BaseException) -> None:
        """`error` ends this process or a thread of it."""
        if self.scene.locator is not None:
            self.scene.locator.finish()
        with quiet():
            crash = crash_of(error, self.scene, self.regions, self.modules.names)
        if crash is not None:
            self.scene.writer.record(crash)

    def close(self) -> None:
        """Writes what was kept for the end."""
        if child.in_worker() or not (
            self.scene.iteration or self.modules.names.roots() or self.scene.optimizers.alive()
        ):
            return
        self.scene.writer.fact("peak_bytes", peak_bytes())
        locate = [] if self.scene.locator is None else [self.scene.locator.finish]
        self.scene.writer.fact("given_gradients", sorted(self.owners.given))
        for part in (*locate, self.events.flush, self.steps.close, self.modules.close, self.regions.close):
            try:
                part()
            except Exception as error:
                self.failed("close", error)

    def _about(self, kind: str, scaler: Any, optimizer: Optimizer, **data: Any) -> None:
        self.events.tell(
            kind,
            scaler=self.scene.scalers.of(scaler),
            optimizer=self.scene.optimizers.of(optimizer),
            enabled=scaler.is_enabled(),
            **data,
        )


def peak_bytes() -> int:
    """The largest memory that this process held: on its accelerator if it used one, else of the process."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch leaves it untyped
        return int(torch.cuda.max_memory_allocated())
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _loss_of(outputs: list[Tensor]) -> dict[str, Any]:
    """What is known of a loss: value (the mean of a vector), dtype, shape, and the region that it was made in."""
    if not outputs:
        return {}
    first = outputs[0]
    return {"value": _value_of(first), "dtype": dtype_name(first.dtype), "shape": tuple(first.shape)}


def _value_of(tensor: Tensor) -> float:
    with quiet():
        return float(tensor.detach().double().mean())


def _told(loss: dict[str, Any]) -> dict[str, Any]:
    """A loss as an event's data."""
    if not loss:
        return {}
    finite = math.isfinite(loss["value"])
    return {
        "loss": loss["value"],
        "loss_dtype": loss["dtype"],
        "loss_shape": list(loss["shape"]),
        "loss_finite": finite,
    }


def _made_at(outputs: tuple[Tensor, ...]) -> dict[str, Any]:
    """Where the script made the leaf that backward ends at, if the graph has one only and it is no parameter."""
    leaves = {id(leaf): leaf for leaf in _leaves(outputs)}
    sites = [getattr(leaf, LEAF, None) for leaf in leaves.values()]
    return {"leaf_site": as_fact(sites[0])} if len(sites) == 1 and sites[0] is not None else {}


def _leaves(outputs: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """The leaves of a small graph; those of the first nodes of a large one."""
    yield from (tensor for tensor in outputs if tensor.is_leaf)
    yield from (node.variable for node in nodes_under(outputs, REACH) if hasattr(node, "variable"))


def _keys(value: Any) -> list[str]:
    """The names of what a saved dict holds."""
    return [str(key) for key in list(value)[:50]] if isinstance(value, dict) else []
