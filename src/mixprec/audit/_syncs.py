"""A host sync is a moment in which the device runs dry; it is counted per line, and matters most in mid-step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mixprec.audit._log import Kind, Mark, Phase, Step, Sync
from mixprec.records import Location

__all__ = ["SyncRow", "syncs_of"]


@dataclass(frozen=True)
class SyncRow:
    """Reads of device values from one line of the script. On a GPU each waits for all work queued so far.

    `early` tells that work of the same step is still to come behind it: the read is in forward or before backward;
    `in_forward` that a model's own forward asks; `of_model` that the value comes from the model and not from data
    that the script is preparing.
    `by_script` is False where a library asked, as `GradScaler.step` must.
    """

    what: str
    location: Location
    count: int
    early: bool
    in_forward: bool
    of_model: bool
    by_script: bool


def syncs_of(step: Step) -> tuple[SyncRow, ...]:
    """The syncs of `step`, the most frequent first. **Cost**: pure Python."""
    grouped: dict[tuple[Location, bool], list[Sync]] = defaultdict(list)
    early: set[Location] = set()
    computed = _computed(step)
    forward = False
    last = max((i for i, e in enumerate(step.events) if isinstance(e, Mark) and e.what == "backward"), default=-1)
    for index, event in enumerate(step.events):
        if isinstance(event, Mark):
            forward = event.what in ("forward", "region")
        elif isinstance(event, Sync):
            grouped[event.location, event.by_script].append(event)
            if event.in_module or (forward and index < last and event.phase is not Phase.OPTIMIZER):
                early.add(event.location)
    rows = [
        SyncRow(
            what=", ".join(dict.fromkeys(sync.what for sync in syncs)),
            location=location,
            count=_distinct(syncs),
            early=location in early,
            of_model=any(sync.storage in computed for sync in syncs),
            in_forward=any(sync.in_module for sync in syncs),
            by_script=by_script,
        )
        for (location, by_script), syncs in grouped.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.count))


def _distinct(syncs: list[Sync]) -> int:
    """`x.cpu().numpy()` waits once: of the reads in one line, the most frequent kind counts."""
    reads = [sync.what for sync in syncs if sync.what in ("cpu", "numpy", "tolist")]
    others = len(syncs) - len(reads)
    return others + max((reads.count(what) for what in set(reads)), default=0)


def _computed(step: Step) -> frozenset[int]:
    """Storages whose values depend on a weight, and those that are left from an earlier step."""
    known = {h.ref.storage for h in (*step.earlier, *step.held) if h.kind in (Kind.WEIGHT, Kind.MASTER, Kind.GRADIENT)}
    made: set[int] = set()
    for op in step.ops():
        made.update(op.made)
        if any(ref.storage in known for ref in op.inputs):
            known.update(ref.storage for ref in op.outputs)
    left = {n for n in step.alive if n not in made and not step.storages[n].before}
    return frozenset(known | left)
