"""What replaying an incident showed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mixprec._trace import Flush, Origin, Room, from_document
from mixprec.records import OpRecord, to_json

__all__ = ["NOTABLE", "Outcome", "Replay", "Traced", "place", "read_traced", "same", "traced_document"]

NOTABLE = 0.01
"""A share of gradients that is worth a word when it is lost."""


@dataclass(frozen=True)
class Outcome:
    """One run of the step: its losses, and the check sum of each gradient by root and parameter."""

    losses: tuple[float, ...]
    gradients: Mapping[str, str]
    kind: str = ""
    differences: tuple[str, ...] = ()

    def same_as(self, other: Outcome) -> bool:
        """Whether both runs are bit for bit the same, as far as losses and gradients show."""
        return same(self.losses, other.losses) and dict(self.gradients) == dict(other.gradients)


@dataclass(frozen=True)
class Traced:
    """What the tracer saw.

    `compiled`: a compiled function ran, in eager mode while it was traced. `rank`: the rank that saw it, which is
    another than the incident's where only that one is at fault.
    """

    origin: Origin
    ops: int
    room: Room | None = None
    flushes: tuple[Flush, ...] = ()
    compiled: bool = False
    records: tuple[OpRecord, ...] = ()
    rank: int = 0


@dataclass(frozen=True)
class Replay:
    """The step run twice without and once with the tracer.

    `repeats`: both runs were bit for bit the same; where not, the machine, a kernel or an unseeded source of chance
    is at fault and nothing else means anything. `exact`: they were what was recorded too. `notes` say what could not
    be put back or how the step was reached. `avoiding_scale` is a smaller loss scale at which the step was run and was
    clean; None where no smaller one avoids it, or nothing overflowed in backward.
    """

    incident: str
    kind: str
    step: int
    repeats: bool
    exact: bool
    outcome: Outcome
    traced: Traced | None
    precision: str | None = None
    notes: tuple[str, ...] = field(default=())
    avoiding_scale: float | None = None
    rank: int = 0

    @property
    def healthy(self) -> bool:
        """Whether this run of the step had no Inf or NaN that anybody is to blame for."""
        return self.traced is not None and self.traced.origin.clean

    @property
    def most_lost(self) -> Flush | None:
        """Where the largest share of gradients was flushed, if that is at least a hundredth."""
        flushes = () if self.traced is None else self.traced.flushes
        worst = max(flushes, key=lambda flush: flush.zeroed + flush.subnormal, default=None)
        return worst if worst is not None and worst.zeroed + worst.subnormal >= NOTABLE else None

    @property
    def headline(self) -> str:
        """The op at fault and what it did, in a sentence; of a healthy step what it lost or hid."""
        first = None if self.traced is None else self.traced.origin.first
        if first is not None:
            return f"{place(first)}: {_did(first, self.traced)}"
        lost = self.most_lost
        if lost is None and self.traced is not None and self.traced.origin.hidden:
            one = self.traced.origin.hidden[0]
            return f"{place(one)}: {_did(one, self.traced)} Later ops hid it."
        if lost is None:
            return "No op made an Inf or NaN that mattered."
        return (
            f"{place(lost.record)}: of the gradients that {lost.record.op} computed, {lost.zeroed:.1%} became 0 and "
            f"{lost.subnormal:.1%} subnormal."
        )


def place(record: OpRecord) -> str:
    """File, line and module of an op in words."""
    where = f"{record.location.file}:{record.location.line}" if record.location.file else "unknown line"
    if record.location.module is None:
        return where
    return f"{where}, module {record.location.module or '(top)'} ({record.module_class})"


def _did(record: OpRecord, traced: Traced | None) -> str:
    origin = Origin() if traced is None else traced.origin
    if record is origin.given:
        return f"{record.op} got Inf or NaN from outside the step."
    made = " and ".join(
        name
        for name, there in (
            ("Inf", any(one.infs for one in record.outputs)),
            ("NaN", any(one.nans for one in record.outputs)),
        )
        if there
    )
    made_of = "Inf" if any(one.infs for one in record.inputs) else "finite numbers" if record.inputs else "no numbers"
    dtype = f" ({record.outputs[0].dtype})" if record.outputs else ""
    return f"{record.op} made {made} of {made_of} in {record.phase}{dtype}."


def same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two rows of numbers are equal, NaN to NaN."""
    return len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def traced_document(traced: Traced) -> dict[str, Any]:
    """`traced` as JSON."""
    document: dict[str, Any] = to_json(traced)
    return document


def read_traced(document: Mapping[str, Any]) -> Traced:
    """What `traced_document` wrote."""
    origin = {name: _record(value) for name, value in document["origin"].items() if name != "hidden"}
    hidden = tuple(from_document(one) for one in document["origin"]["hidden"])
    room = document["room"]
    return Traced(
        origin=Origin(**origin, hidden=hidden),
        ops=document["ops"],
        room=None if room is None else Room(**{name: _field(value) for name, value in room.items()}),
        flushes=tuple(Flush(**{name: _field(value) for name, value in one.items()}) for one in document["flushes"]),
        compiled=document["compiled"],
        records=tuple(from_document(one) for one in document["records"]),
        rank=document["rank"],
    )


def _record(document: Any) -> OpRecord | None:
    return None if document is None else from_document(document)


def _field(value: Any) -> Any:
    return from_document(value) if isinstance(value, dict) else value
