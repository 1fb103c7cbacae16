"""A step is what runs from one cycle of the optimizers to the next; without an optimizer, one backward or one forward.

Cutting happens afterwards, because whether an optimizer will ever step is not known while the first batch runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mixprec.audit._log import Event, Freed, Held, Kind, Mark, Op, Phase, Step, Storage

__all__ = ["cut", "cut_at", "cycle_ends", "typical"]


def cut(events: Sequence[Event], storages: dict[int, Storage]) -> tuple[Step, ...]:
    """The complete steps in `events`, in order."""
    marks = [(i, e) for i, e in enumerate(events) if isinstance(e, Mark)]
    stepped = [(i, e.dtype) for i, e in marks if e.what == "step"]
    if stepped:
        return cut_at(events, storages, cycle_ends(stepped))
    backward = [i for i, e in marks if e.what == "backward"]
    if backward:
        return cut_at(events, storages, _last_of_each(backward, [i for i, e in marks if e.what == "forward"]))
    starts = [i for i, e in marks if e.what == "forward"]
    return cut_at(events, storages, [i - 1 for i in starts[1:]] + ([len(events) - 1] if starts else []))


def cycle_ends(stepped: Sequence[tuple[int, str]]) -> list[int]:
    """Positions at which every optimizer has had its turn: those before the first one steps again, and the last."""
    leader = stepped[0][1]
    ends = [position for (position, _), (_, following) in itertools.pairwise(stepped) if following == leader]
    others = {name for _, name in stepped}
    if stepped[-1][1] != leader or others == {leader}:
        ends.append(stepped[-1][0])
    return ends


def cut_at(events: Sequence[Event], storages: dict[int, Storage], ends: Sequence[int]) -> tuple[Step, ...]:
    """`events` cut behind each position of `ends`; what is left behind the last is no step."""
    steps, start = [], 0
    for end in ends:
        if end < start:
            continue
        part = tuple(events[start : end + 1])
        held, replaced = _held(part)
        earlier, before = _held(events[:start])
        steps.append(Step(part, storages, held, _alive(events, storages, start), (*before, *earlier, *replaced)))
        start = end + 1
    return tuple(steps)


def _held(events: Sequence[Event]) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
    """Who owns which storage, each once, and the last owner counts; apart from it state that other state replaced."""
    owners: dict[int, Held] = {}
    places: dict[int, tuple[str, str]] = {}
    replaced: list[Held] = []
    for mark in (event for event in events if isinstance(event, Mark)):
        states = {(mark.dtype, held.name) for held in mark.held if held.kind is Kind.STATE}
        here = {held.ref.storage for held in mark.held}
        for storage in [n for n, place in places.items() if place in states and n not in here]:
            replaced.append(owners.pop(storage))
            del places[storage]
        for held in mark.held:
            owners[held.ref.storage] = held
            if held.kind is Kind.STATE:
                places[held.ref.storage] = (mark.dtype, held.name)
    return tuple(owners.values()), tuple(replaced)


def _alive(events: Sequence[Event], storages: dict[int, Storage], position: int) -> frozenset[int]:
    """The storages that exist at `position`."""
    made = {n for e in events[:position] if isinstance(e, Op) for n in e.made}
    freed = {e.storage for e in events[:position] if isinstance(e, Freed)}
    return frozenset((made | {n for n, s in storages.items() if s.before}) - freed)


def _last_of_each(backward: Sequence[int], forward: Sequence[int]) -> list[int]:
    """Of each run of backward passes without a forward in between, the last."""
    ends = []
    for here, following in zip(backward, [*backward[1:], None], strict=True):
        if following is None or any(here < f < following for f in forward):
            ends.append(here)
    return ends


def typical(steps: Sequence[Step]) -> Step:
    """The last step in which the optimizer moved; the last of all where none did."""
    moved = [step for step in steps if any(True for _ in step.ops(Phase.OPTIMIZER))]
    best = moved or list(steps)
    most = max(sum(op.flops for op in step.ops()) for step in best)
    return next(step for step in reversed(best) if sum(op.flops for op in step.ops()) * 2 >= most)
