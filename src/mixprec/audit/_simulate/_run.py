"""The state of a simulation: which value is stored in which dtype, what exists, and what backward still needs."""

from __future__ import annotations

from mixprec._policy import Policy
from mixprec.audit._log import Asked, Kind, width
from mixprec.audit._simulate._ledger import Key, Ledger
from mixprec.audit._simulate._reading import Reading
from mixprec.audit._simulate._rules import Rules
from mixprec.audit._simulate._ways import Precision
from mixprec.audit._simulate._work import Work

__all__ = ["Run"]


class Run:
    """What the phases hand on.

    `kept` is what backward needs, with the first op that kept it; `cached` are bytes of casts of weights. `halved` is
    True for forward ops that computed in 16 bits. `workspaces` are bytes by storage; `gone` is what the record let go.
    """

    def __init__(self, reading: Reading, precision: Precision, policy: Policy) -> None:
        self.reading = reading
        self.step = reading.step
        self.precision = precision
        self.rules = Rules(policy, precision.low, reading.covered)
        self.ledger = Ledger()
        self.kept: dict[Key, int] = {}
        self.cached: dict[int, int] = {}
        self.halved: dict[int, bool] = {}
        self.work: list[Work] = []
        self.dtypes: dict[int, str] = {}
        self.workspaces: dict[int, int] = {}
        self.gone: set[int] = set()

    def size(self, number: int) -> int:
        """Bytes of the value in a storage."""
        if number in self.workspaces:
            return self.workspaces[number]
        storage = self.step.storages[number]
        seen = width(storage.dtype)
        return storage.bytes * width(self.dtype(number)) // seen if seen else storage.bytes

    def dtype(self, number: int) -> str:
        """What the value in a storage is stored in."""
        number = self.reading.value(number)
        known = self.dtypes.get(number)
        if known is None:
            seen = self.step.storages[number].dtype
            weight = self.reading.owned.get(number) in (Kind.WEIGHT, Kind.GRADIENT)
            narrows = weight and seen in ("float32", "float16", "bfloat16")
            known = self.dtypes[number] = self.precision.weights if narrows else seen
        return known

    def freed(self, number: int) -> None:
        """The record lets go of a storage; what backward needs stays."""
        self.gone.add(number)
        self.ledger.drop(("t", number))
        if number in self.reading.alias or number in self.reading.gathered:
            return
        number = self.reading.gathered_into.get(number, number)
        if ("v", number) not in self.kept:
            self.ledger.drop(("v", number))

    def release(self, key: Key) -> None:
        """Backward needs it no longer; a value that the record still has stays until the record lets go of it."""
        del self.kept[key]
        if key[0] != "v" or key[1] in self.gone or key[1] in self.reading.alias:
            self.ledger.drop(key)

    def asked(self, event: Asked) -> None:
        """The script casts by hand: from here on the value is in that dtype, and what backward kept is another."""
        number = self.reading.value(event.storage)
        key: Key = ("v", number)
        if self.reading.owned.get(number) not in (None, Kind.SAVED) or self.dtype(number) == event.dtype:
            return
        old = self.ledger.live.pop(key, 0)
        if not old:
            return
        self.dtypes[number] = event.dtype
        self.ledger.live["o", number] = old
        self.ledger.hold(key, self.size(number))
        if key in self.kept:
            self.kept["o", number] = self.kept.pop(key)
        else:
            self.ledger.drop(("o", number))
