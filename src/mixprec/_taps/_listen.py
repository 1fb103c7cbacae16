"""`listen` puts taps only where the listener overrides something, and `remove` leaves torch as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from mixprec._taps._calls import Taps, Told
from mixprec._taps._listener import Listener, heard
from mixprec._trace._modules import unwarned

__all__ = ["Listening", "listen"]


class Listening:
    """Taps that are in place until `remove`."""

    def __init__(self, listener: Listener, taps: Taps) -> None:
        self.listener = listener
        self._taps = taps

    def remove(self) -> None:
        """Takes every tap out; a second call does nothing."""
        self._taps.remove()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def listen(listener: Listener) -> Listening:
    """Tells `listener` of everything that it overrides, in the whole process, until the result's `remove`.

    **Cost**: one Python call per tapped call; no kernel, no host sync. Module hooks run for every module.
    """
    taps = Taps()
    for names, put in _SOURCES.items():
        if heard(listener, names):
            put(taps, functools.partial(_telling, listener))
    return Listening(listener, taps)


Teller = Callable[..., None]
Telling = Callable[[str], Teller | None]


def _telling(listener: Listener, event: str) -> Teller | None:
    """The method `event` of `listener`, whose exceptions go to `failed`; None where it is not overridden."""
    if not heard(listener, (event,)):
        return None
    method = getattr(listener, event)

    def tell(*args: Any) -> None:
        try:
            method(*args)
        except Exception as error:  # a listener must never break what it listens to
            listener.failed(event, error)

    return tell


def _later_subclasses(taps: Taps, base: type, put: Callable[[], None]) -> None:
    """`put` runs before an object of a subclass of `base` is built, so that its overrides are tapped as well."""
    taps.family(base, "__init__", before=lambda self, *args, **kwargs: put())


# scaler


def _tap_scaler(taps: Taps, telling: Telling) -> None:
    created, restored = telling("scaler_created"), telling("scaler_restored")
    scale_read, saved = telling("scale_read"), telling("scaler_saved")
    told = _told_of_steps(telling)

    def put() -> None:
        base = torch.amp.GradScaler
        for name, (before, after) in told.items():
            taps.family(base, name, before, after)
        taps.family(base, "get_scale", after=scale_read and (lambda scale, scaler: scale_read(scaler, scale)))
        taps.family(base, "state_dict", after=saved and (lambda state, scaler: saved(scaler, state)))
        taps.family(base, "load_state_dict", after=restored and (lambda result, scaler, state: restored(scaler, state)))

    taps.family(
        torch.amp.GradScaler,
        "__init__",
        before=lambda *args, **kwargs: put(),
        after=created and (lambda result, scaler, *args, **kwargs: created(scaler)),
    )
    put()


def _told_of_steps(telling: Telling) -> dict[str, tuple[Told | None, Told | None]]:
    """What is told before and after `scale`, `unscale_`, `step` and `update`; within a step `unscale_` is its own."""
    stepping: set[int] = set()
    before_step, stepped = telling("before_scaler_step"), telling("scaler_stepped")
    before_unscale, unscaled = telling("before_unscale"), telling("unscaled")
    before_update, updated = telling("before_update"), telling("updated")
    before_scale, scaled = telling("before_scale"), telling("scaled")

    def step_begins(scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        if before_step:
            before_step(scaler, optimizer)
        stepping.add(id(optimizer))

    def step_ends(result: Any, scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        stepping.discard(id(optimizer))
        if stepped:
            stepped(scaler, optimizer, result)

    def update_begins(scaler: Any, new_scale: Any = None) -> None:
        stepping.clear()
        if before_update:
            before_update(scaler, new_scale)

    return {
        "scale": (before_scale, scaled and (lambda result, scaler, outputs: scaled(scaler, outputs, result))),
        "unscale_": (
            before_unscale and (lambda scaler, optimizer: before_unscale(scaler, optimizer, id(optimizer) in stepping)),
            unscaled and (lambda result, scaler, optimizer: unscaled(scaler, optimizer, id(optimizer) in stepping)),
        ),
        "step": (step_begins, step_ends),
        "update": (update_begins, updated and (lambda result, scaler, new_scale=None: updated(scaler, new_scale))),
    }


# optimizer and scheduler


def _tap_optimizer(taps: Taps, telling: Telling) -> None:
    created, cleared, restored = map(telling, ("optimizer_created", "gradients_cleared", "optimizer_restored"))

    after_clearing = cleared and (lambda result, owner, *args, **kwargs: cleared(owner))

    def put() -> None:
        taps.family(Optimizer, "zero_grad", after=after_clearing)
        taps.family(
            Optimizer,
            "load_state_dict",
            after=restored and (lambda result, owner, *args, **kwargs: restored(owner)),
        )

    taps.family(
        Optimizer,
        "__init__",
        before=lambda *args, **kwargs: put(),
        after=created and (lambda result, optimizer, *args, **kwargs: created(optimizer)),
    )
    put()
    taps.call(nn.Module, "zero_grad", after=after_clearing)


def _tap_steps(taps: Taps, telling: Telling) -> None:
    before, after = telling("before_step"), telling("stepped")
    if before:
        taps.add(register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: before(optimizer)).remove)
    if after:
        taps.add(register_optimizer_step_post_hook(lambda optimizer, args, kwargs: after(optimizer)).remove)


def _tap_scheduler(taps: Taps, telling: Telling) -> None:
    created, stepped = telling("scheduler_created"), telling("scheduler_stepped")
    building: set[int] = set()

    def after_step(result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        if stepped and id(scheduler) not in building:
            stepped(scheduler)

    def before_init(scheduler: Any, *args: Any, **kwargs: Any) -> None:
        taps.family(LRScheduler, "step", after=after_step)
        building.add(id(scheduler))

    def after_init(result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        building.discard(id(scheduler))
        if created:
            created(scheduler)

    taps.family(LRScheduler, "__init__", before_init, after_init)
    taps.family(LRScheduler, "step", after=after_step)


# gradients


def _tensors(outputs: Any) -> tuple[Tensor, ...]:
    if isinstance(outputs, Tensor):
        return (outputs,)
    try:
        return tuple(item for item in outputs if isinstance(item, Tensor))
    except TypeError:
        return ()


def _tap_backward(taps: Taps, telling: Telling) -> None:
    before, after = telling("before_backward"), telling("backward_done")
    taps.call(
        torch.autograd,
        "backward",
        before and (lambda tensors=(), *args, **kwargs: before(_tensors(tensors))),
        after and (lambda result, tensors=(), *args, **kwargs: after(_tensors(tensors))),
    )


def _tap_differentiation(taps: Taps, telling: Telling) -> None:
    done = telling("differentiated")

    def after(result: Any, outputs: Any = (), *args: Any, **kwargs: Any) -> None:
        if done:
            done(_tensors(outputs), bool(kwargs.get("create_graph", args[3] if len(args) > 3 else False)))

    taps.call(torch.autograd, "grad", after=after)


def _tap_clipping(taps: Taps, telling: Telling) -> None:
    told = telling("before_clip"), telling("clipped")

    def tap(owner: Any, name: str, by: str) -> None:
        original = vars(owner)[name]

        @functools.wraps(original)
        def tapped(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            several = not isinstance(parameters, Tensor)
            kept = tuple(parameters) if several else (parameters,)  # a generator can be walked once only
            limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value", 0.0))
            before, after = this.told or (None, None)
            if before:
                before(kept, limit, by)
            result = original(kept if several else parameters, *args, **kwargs)
            if after:
                after(kept, limit, by, result)
            return result

        this: Any = tapped
        this.told = told
        taps.put(owner, name, tapped)

    for owner in (torch.nn.utils.clip_grad, torch.nn.utils):
        tap(owner, "clip_grad_norm_", "norm")
        tap(owner, "clip_grad_value_", "value")


# autocast


def _tap_autocast(taps: Taps, telling: Telling) -> None:
    entered, left = telling("region_entered"), telling("region_left")

    def put() -> None:
        taps.family(torch.autocast, "__enter__", after=entered and (lambda result, region: entered(region)))
        taps.family(torch.autocast, "__exit__", after=left and (lambda result, region, *error: left(region)))

    _later_subclasses(taps, torch.autocast, put)
    put()


# modules


def _tap_modules(taps: Taps, telling: Telling) -> None:
    taps.add(unwarned())
    before, done = telling("before_forward"), telling("forward_done")
    if before:
        taps.add(_pre_hook(before))
    if done:

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if torch._C._get_tracing_state() is None:
                done(module, args, kwargs, output)

        taps.add(_forward_hook(after))


def _forward_hook(after: Teller) -> Callable[[], None]:
    """A global forward hook with keyword arguments; what is returned removes it.

    The handle forgets to take out the mark that the hook wants keyword arguments (torch 2.13), and while that is there
    torch.compile warns of hooks.
    """
    handle = register_module_forward_hook(after, with_kwargs=True)

    def remove() -> None:
        handle.remove()
        torch.nn.modules.module._global_forward_hooks_with_kwargs.pop(handle.id, None)

    return remove


def _pre_hook(before: Teller) -> Callable[[], None]:
    """A global forward pre-hook; keyword arguments are not handed to global pre-hooks, so the dict is empty.

    While `torch.jit.trace` runs nothing is told: what a listener computed would end up in the graph.
    """

    def begin(module: nn.Module, args: Any) -> None:
        if torch._C._get_tracing_state() is None:
            before(module, args, {})

    return register_module_forward_pre_hook(begin).remove


def _tap_conversion(taps: Taps, telling: Telling) -> None:
    converted = telling("converted")
    for name, dtype in (
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("double", torch.float64),
    ):
        taps.call(nn.Module, name, after=converted and (lambda result, module, dtype=dtype: converted(module, dtype)))

    def after_to(result: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        dtype = torch._C._nn._parse_to(*args, **kwargs)[1]
        if converted and dtype is not None:
            converted(module, dtype)

    taps.call(nn.Module, "to", after=after_to)


def _tap_weights(taps: Taps, telling: Telling) -> None:
    restored = telling("weights_restored")
    taps.call(
        nn.Module,
        "load_state_dict",
        after=restored and (lambda result, module, state_dict, *args, **kwargs: restored(module, state_dict, result)),
    )


# data and files


def _tap_loader(taps: Taps, telling: Telling) -> None:
    loaded = telling("batch_loaded")
    base = torch.utils.data.dataloader._BaseDataLoaderIter
    taps.family(base, "__next__", after=loaded and (lambda batch, iterator: loaded(iterator, batch)))


def _tap_files(taps: Taps, telling: Telling) -> None:
    saved, loaded = telling("file_saved"), telling("file_loaded")
    taps.call(torch, "save", after=saved and (lambda result, obj=None, *args, **kwargs: saved(obj)))
    taps.call(torch, "load", after=loaded and (lambda result, *args, **kwargs: loaded(result)))


_SCALER = (
    "before_scale",
    "before_scaler_step",
    "before_unscale",
    "before_update",
    "scale_read",
    "scaled",
    "scaler_created",
    "scaler_restored",
    "scaler_saved",
    "scaler_stepped",
    "unscaled",
    "updated",
)

_SOURCES: dict[tuple[str, ...], Callable[[Taps, Telling], None]] = {
    _SCALER: _tap_scaler,
    ("optimizer_created", "gradients_cleared", "optimizer_restored"): _tap_optimizer,
    ("before_step", "stepped"): _tap_steps,
    ("scheduler_created", "scheduler_stepped"): _tap_scheduler,
    ("before_backward", "backward_done"): _tap_backward,
    ("differentiated",): _tap_differentiation,
    ("before_clip", "clipped"): _tap_clipping,
    ("region_entered", "region_left"): _tap_autocast,
    ("before_forward", "forward_done"): _tap_modules,
    ("weights_restored",): _tap_weights,
    ("converted",): _tap_conversion,
    ("batch_loaded",): _tap_loader,
    ("file_saved", "file_loaded"): _tap_files,
}
