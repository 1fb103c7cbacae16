"""Taps for what only the doctor asks: where threads and compiled functions come from, what ranks add up, where a
gradient-bearing scalar was made by hand.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from mixprec._script import child
from mixprec._trace import user_site
from mixprec.doctor._recorder._numbers import dtype_name, extents
from mixprec.doctor._recorder._quiet import quiet
from mixprec.doctor._recorder._writer import Writer
from mixprec.doctor.interventions.fill_empty import asking_frame
from mixprec.records import Location

__all__ = [
    "HOOKED",
    "LEAF",
    "Threads",
    "as_fact",
    "nan_filter",
    "watch_compile",
    "watch_empty",
    "watch_intervals",
    "watch_leaves",
    "watch_reductions",
    "watch_step_hooks",
]

HOOKED = "_mixprec_hooked_at"
"""Attribute of an optimizer with hooks around its step: the line that registered the last."""
LEAF = "_mixprec_made_at"
"""Attribute of a tensor that was made to ask for a gradient and is no parameter: the line that made it."""


def as_fact(site: Location) -> dict[str, Any]:
    """A place as a fact's value."""
    return {"file": site.file, "line": site.line}


def nan_filter() -> str | None:
    """The class of a trainer on the stack that leaves losses that are not finite out of its log (transformers'
    `logging_nan_inf_filter`); None where there is none.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if getattr(getattr(owner, "args", None), "logging_nan_inf_filter", False) is True:
            return type(owner).__name__
        frame = frame.f_back
    return None


class Threads:
    """Which threads call modules, and which line started the first of them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seen: set[int] = set()
        start = threading.Thread.start

        @functools.wraps(start)
        def told(thread: threading.Thread) -> None:
            thread._mixprec_site = user_site()  # type: ignore[attr-defined] # a note on the thread itself
            start(thread)

        threading.Thread.start = told  # type: ignore[assignment,method-assign] # a tap

    def calls_module(self) -> None:
        """The running thread calls an outermost module."""
        thread = threading.current_thread()
        if thread is threading.main_thread() or thread.ident in self._seen:
            return
        self._seen.add(thread.ident or 0)
        self._writer.fact("threads_with_modules", len(self._seen))
        if len(self._seen) == 1:
            self._writer.fact("thread_site", as_fact(getattr(thread, "_mixprec_site", Location())))


def watch_compile(writer: Writer) -> None:
    """The first line that compiles something is a fact."""
    compile_ = torch.compile
    told = False

    @functools.wraps(compile_)
    def tapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        if not told:
            told = True
            writer.fact("compile_site", as_fact(user_site()))
        return compile_(*args, **kwargs)

    torch.compile = tapped


def watch_reductions(tell: Callable[..., None]) -> None:
    """Every `all_reduce` of 16-bit numbers: its dtype, and the largest magnitude that this rank adds."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    original = distributed_c10d.all_reduce

    @functools.wraps(original)
    def tapped(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float16, torch.bfloat16):
            with quiet():
                amax = extents([tensor])
            tell("all_reduce", dtype=dtype_name(tensor.dtype), amax=amax[0] if amax else None, numel=tensor.numel())
        return original(tensor, *args, **kwargs)

    distributed_c10d.all_reduce = tapped
    torch.distributed.all_reduce = tapped


def watch_empty(tell: Callable[..., None]) -> None:
    """The lines of the script that ask for uninitialised floating-point memory, each once."""
    seen: set[tuple[str, int]] = set()

    def watch(owner: Any, name: str) -> None:
        make = getattr(owner, name)

        @functools.wraps(make)
        def tapped(*args: Any, **kwargs: Any) -> Any:
            made = make(*args, **kwargs)
            frame = asking_frame() if made.is_floating_point() and not child.in_worker() else None
            if frame is not None and (place := (frame.f_code.co_filename, frame.f_lineno)) not in seen:
                seen.add(place)
                tell("empty_made", site=Location(file=place[0], line=place[1]))
            return made

        setattr(owner, name, tapped)

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        watch(owner, name)


def watch_intervals(tell: Callable[..., None]) -> None:
    """Every change of a scaler's growth interval, with the number of clean steps that it counts from."""
    scaler_class: Any = torch.amp.GradScaler
    change = scaler_class.set_growth_interval

    @functools.wraps(change)
    def tapped(scaler: Any, new_interval: int) -> Any:
        before = getattr(scaler, "_growth_interval", None)
        changed = change(scaler, new_interval)
        if scaler.is_enabled() and before != new_interval:
            tell("interval_changed", before=before, interval=int(new_interval))
        return changed

    scaler_class.set_growth_interval = tapped


def watch_step_hooks() -> None:
    """An optimizer remembers the line that put the last hook around its step."""
    for name in ("register_step_pre_hook", "register_step_post_hook"):
        register = getattr(torch.optim.Optimizer, name)

        @functools.wraps(register)
        def told(optimizer: Any, hook: Any, register: Any = register) -> Any:
            setattr(optimizer, HOOKED, user_site())
            return register(optimizer, hook)

        setattr(torch.optim.Optimizer, name, told)


def watch_leaves() -> None:
    """A tensor that is made to require a gradient remembers where."""
    make = torch.tensor
    ask = torch.Tensor.requires_grad_

    @functools.wraps(make)
    def tensor(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        if kwargs.get("requires_grad") and not child.in_worker():
            setattr(made, LEAF, user_site())
        return made

    @functools.wraps(ask)
    def requires_grad_(self: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
        made = self.is_leaf and not isinstance(self, torch.nn.Parameter)
        if requires_grad and made and not torch.compiler.is_compiling():
            setattr(self, LEAF, user_site())
        return ask(self, requires_grad)

    torch.tensor = tensor
    torch.Tensor.requires_grad_ = requires_grad_  # type: ignore[assignment,method-assign] # a tap
