"""A tapped call tells before it begins and after it returned, once, however many overrides call each other."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Taps", "Told"]

Told = Callable[..., None]
_running = threading.local()


class Taps:
    """What was put in place of torch's functions and methods, so that it can be taken out again, in reverse."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._tapped: set[tuple[int, str]] = set()

    def add(self, undo: Callable[[], None]) -> None:
        """`undo` is called by `remove`."""
        self._undo.append(undo)

    def call(self, owner: Any, name: str, before: Told | None = None, after: Told | None = None) -> None:
        """`owner.name(*args, **kwargs)` tells `before(*args, **kwargs)` and `after(result, *args, **kwargs)`.

        Nothing happens where there is nothing to tell, or `owner` (a class or module) does not define `name` itself.
        """
        original = vars(owner).get(name)
        if before is after is None or original is None or (id(owner), name) in self._tapped:
            return
        self._tapped.add((id(owner), name))
        self.put(owner, name, _tapped(original, (id(self), name), (before, after)))

    def put(self, owner: Any, name: str, tapped: Any) -> None:
        """Until `remove`, `owner.name` is `tapped`: it wraps what it was, and tells those in its attribute `told`."""
        tapped.below = vars(owner)[name]
        setattr(owner, name, tapped)
        self.add(lambda: _put_back(owner, name, tapped))

    def family(self, base: type, name: str, before: Told | None = None, after: Told | None = None) -> None:
        """The method `name` of `base` and of every subclass that overrides it, also of those defined later."""
        for cls in _with_subclasses(base):
            self.call(cls, name, before, after)

    def remove(self) -> None:
        """Puts everything back."""
        while self._undo:
            self._undo.pop()()


def _put_back(owner: Any, name: str, tapped: Any) -> None:
    """Takes `tapped` out; where another tap lies over it, it goes when that one goes.

    It tells nothing more and lets go of whom it told: others may hold it (torch.compile lists torch's functions).
    """
    tapped.told = None
    while getattr(current := vars(owner).get(name), "told", ()) is None:
        setattr(owner, name, current.below)


def _with_subclasses(base: type) -> list[type]:
    found: list[type] = [base]
    for cls in found:
        subclasses: list[type] = cls.__subclasses__()
        found += [sub for sub in subclasses if sub not in found]
    return found


def _tapped(original: Any, tap: tuple[int, str], told: tuple[Told | None, Told | None]) -> Any:
    """`original` with what is told around it; a call through the same tap on the same object from inside one is its
    own business and is not told.
    """

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = (tap, id(args[0]) if args else 0)
        calls: set[tuple[tuple[int, str], int]] = _running.__dict__.setdefault("calls", set())
        if key in calls or this.told is None:
            return original(*args, **kwargs)
        before, after = this.told
        calls.add(key)
        try:
            if before is not None:
                before(*args, **kwargs)
            result = original(*args, **kwargs)
            if after is not None:
                after(result, *args, **kwargs)
            return result
        finally:
            calls.discard(key)

    this: Any = call
    this.told = told
    return call
