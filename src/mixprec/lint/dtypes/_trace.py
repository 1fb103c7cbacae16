"""What happens to values in a file, once per device that the script leaves open; a rule believes what holds in all."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from mixprec.lint._view import FileView
from mixprec.lint.dtypes._state import Event, Exhausted, Site
from mixprec.lint.dtypes._walker import Walker

__all__ = ["Hit", "Trace", "happened", "held", "traces"]


@dataclass(frozen=True)
class Trace:
    """One walk through a file. `failure` says what stopped it, if anything did but its budget."""

    device: str
    events: tuple[Event, ...] = ()
    failure: str | None = None
    sites: Mapping[int, Site] = field(default_factory=dict, compare=False, repr=False)
    _by_op: dict[str, list[Event]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for event in self.events:
            self._by_op.setdefault(event.op, []).append(event)

    def of(self, *ops: str) -> list[Event]:
        """The events of these kinds, in the order in which they happened within one kind."""
        return [event for op in ops for event in self._by_op.get(op, ())]


@dataclass(frozen=True)
class Hit:
    """Something that a rule found: where, and what to say about it. `at` is a better place, if it is in the file."""

    node: ast.AST
    message: str
    at: ast.AST | None = None


def traces(view: FileView) -> tuple[Trace, ...]:
    """One trace for each device that the script may run on, computed once per file.

    **Cost**: a walk through everything that the file runs, at most `MOST_STEPS` statements and calls; two walks
    where the script leaves the device of an autocast region open.
    """
    return view.memo(_traces)


def _traces(view: FileView) -> tuple[Trace, ...]:
    if _changes_default(view):
        return (Trace("cuda"),)
    devices = _named_devices(view)
    first = Walker(view, devices[0])
    traced = _walk(first, view)
    if len(devices) > 1 or first.state.open_device:
        other = devices[1] if len(devices) > 1 else ("cpu" if devices[0] == "cuda" else "cuda")
        return traced, _walk(Walker(view, other), view)
    return (traced,)


def _changes_default(view: FileView) -> bool:
    """Whether the file changes the dtype of tensors that are made without one: then little would be known of any."""
    return any(view.dtype(call.args[0]) != "float32" for call in view.calls("torch.set_default_dtype") if call.args)


def _named_devices(view: FileView) -> tuple[str, ...]:
    """The device to try first: that which the text names for autocast alone, else CUDA."""
    text = view.source
    only_cpu = ('autocast("cpu"' in text or "autocast('cpu'" in text) and "cuda" not in text
    return ("cpu",) if only_cpu else ("cuda",)


def _walk(walker: Walker, view: FileView) -> Trace:
    failure = None
    try:
        walker.rest(walker.module_frame(view))
    except Exhausted:
        pass
    except Exception as error:  # a walk that fails has seen nothing that a rule may build on
        failure = f"{type(error).__name__}: {error}"
    events = tuple(walker.state.events) if failure is None else ()
    return Trace(walker.state.device, events, failure, walker.state.sites)


def held(view: FileView, find: Callable[[Trace], Iterable[Hit]]) -> list[Hit]:
    """What `find` finds on every device that the script may run on, each place once, in source order."""
    found = [_placed(view, trace, find(trace)) for trace in traces(view)]
    common = set.intersection(*(set(places) for places in found)) if found else set()
    return _ordered(found[0][place] for place in common)


def happened(view: FileView, find: Callable[[Trace], Iterable[Hit]]) -> list[Hit]:
    """What `find` finds on any device that the script may run on."""
    first: dict[int, Hit] = {}
    for trace in traces(view):
        first = {**_placed(view, trace, find(trace)), **first}
    return _ordered(first.values())


def _placed(view: FileView, trace: Trace, hits: Iterable[Hit]) -> dict[int, Hit]:
    """The first hit at each place of this file; a hit in another file is told where this one calls into it."""
    first: dict[int, Hit] = {}
    for hit in hits:
        node = hit.at if hit.at is not None and view.parent(hit.at) is not None else hit.node
        site = None if view.parent(node) is not None else trace.sites.get(id(node))
        message = hit.message if site is None else f"{hit.message} (in {PurePath(site.path).name}, line {site.line})"
        place = node if site is None else site.call
        if view.parent(place) is not None:
            first.setdefault(id(place), Hit(place, message))
    return first


def _ordered(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (getattr(hit.node, "lineno", 0), getattr(hit.node, "col_offset", 0)))
