"""The state of a simulation: which value is stored in which dtype, what exists, and what backward still needs."""

from __future__ import annotations

from mixprec._policy import Policy
from mixprec.audit._log import Kind, width
from mixprec.audit._simulate._ledger import Key, Ledger
from mixprec.audit._simulate._reading import Reading
from mixprec.audit._simulate._rules import Rules
from mixprec.audit._simulate._ways import Precision
from mixprec.audit._simulate._work import Work

__all__ = ["Run"]


class Run:
    """What the phases hand on: `kept` is what backward needs, with the first op that kept it; `cached` are bytes of
    casts of weights; `halved` tells of each forward op whether it computed in 16 bits.
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

    def size(self, number: int) -> int:
        """Bytes of the value in a storage."""
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
        if number not in self.reading.alias and ("v", number) not in self.kept:
            self.ledger.drop(("v", number))
