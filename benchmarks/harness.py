"""Times of different programs are comparable only where they were taken in turn, in one process, on one machine.

So contenders run round after round, each once per round and in another order every time, and what is compared is the
ratio within a round: whatever slows the machine down slows all of them. A ratio comes with its quartiles, which say how
far to trust it.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

import mixprec

SCHEMA = 1
CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def nothing() -> None:
    """Prepares nothing."""


@dataclass(frozen=True)
class Contender:
    """A program to be timed: `call`, after `prepare`, which is not timed and makes every call do the same work."""

    name: str
    call: Callable[[], object]
    prepare: Callable[[], object] = nothing


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one contender is as another: the median over rounds, and its quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Race:
    """Seconds per call of every contender in every round."""

    times: Mapping[str, Sequence[float]]

    @property
    def rounds(self) -> int:
        """How many times everyone ran."""
        return min(map(len, self.times.values()))

    def median(self, name: str) -> float:
        """Seconds per call."""
        return statistics.median(self.times[name])

    def minimum(self, name: str) -> float:
        """Seconds per call."""
        return min(self.times[name])

    def ratio(self, name: str, peer: str) -> Ratio:
        """`peer`'s time by `name`'s, round by round: above 1, `name` is the faster one."""
        ratios = [theirs / own for theirs, own in zip(self.times[peer], self.times[name], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return Ratio(median, low, high)

    def row(self, name: str, peer: str) -> dict[str, Any]:
        """As a row of a table, in milliseconds."""
        ratio = self.ratio(name, peer)
        return {
            "contender": name,
            "median_ms": self.median(name) * 1e3,
            "minimum_ms": self.minimum(name) * 1e3,
            "peer": peer,
            "ratio": ratio.median,
            "quartiles": [ratio.low, ratio.high],
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Bench:
    """Where and for how long to measure. `share` scales the seconds that a question may take; 1 is a full run."""

    device: str = "cpu"
    quick: bool = False
    share: float = 1.0
    clock: str = "wall"

    def race(self, contenders: Sequence[Contender], *, seconds: float, rounds: int = 3) -> Race:
        """Runs all `contenders` in turn for `seconds` × `share`, or up to three times as long for `rounds` rounds.

        A contender that takes less than a millisecond is called several times a round. On an accelerator every call
        is waited for.
        """
        calls = {each.name: self._calls_per_round(each) for each in contenders}
        times: dict[str, list[float]] = {each.name: [] for each in contenders}
        start, allowed = time.perf_counter(), seconds * self.share
        done = 0
        with _without_collector():
            while done < 2 or time.perf_counter() - start < (allowed if done >= rounds else 3 * allowed):
                turn = -1 if done % 2 else 1  # nobody has the same one before it every time
                for place in range(len(contenders)):
                    each = contenders[(turn * place + done) % len(contenders)]
                    times[each.name].append(self._measure(each, calls[each.name]))
                done += 1
        return Race(times)

    def _calls_per_round(self, contender: Contender) -> int:
        for _ in range(2):
            self._measure(contender, 1)
        return min(50, 1 + int(1e-3 / max(self._measure(contender, 1), 1e-6)))

    def _measure(self, contender: Contender, calls: int) -> float:
        clock, total = CLOCKS[self.clock], 0.0
        for _ in range(calls):
            contender.prepare()
            self.wait()
            start = clock()
            contender.call()
            self.wait()
            total += clock() - start
        return total / calls

    def wait(self) -> None:
        """Until the accelerator has done what it was given."""
        if self.device != "cpu":
            torch.accelerator.synchronize()

    def bandwidth(self) -> dict[str, float]:
        """Bytes per second that a copy and an in-place product reach, reads and writes added; best of many.

        64 MiB per tensor, 1 GiB on an accelerator: more than the caches hold.
        """
        source = torch.ones(1 << 24 if self.device == "cpu" else 1 << 28, device=self.device)
        target = torch.empty_like(source)
        one = torch.ones((), device=self.device)
        programs = [Contender("copy", lambda: target.copy_(source)), Contender("multiply", lambda: target.mul_(one))]
        moved = 2 * source.numel() * source.element_size()
        race = self.race(programs, seconds=4.0, rounds=10)
        return {name: moved / race.minimum(name) for name in race.times}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Python's cycle collector runs between measurements only: before, not inside."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True)
class Column:
    """A column of a table: the `key` of its values in the rows, what it is called, and how a value is written."""

    key: str
    title: str
    form: str = "{}"

    def write(self, row: Mapping[str, Any]) -> str:
        """The value in `row`, a dash where there is none."""
        value = row.get(self.key)
        return "–" if value is None else self.form.format(value)


CONTENDER = Column("contender", "")
MEDIAN = Column("median_ms", "median ms", "{:.4g}")
MINIMUM = Column("minimum_ms", "min ms", "{:.4g}")
RATIO = Column("ratio", "times as fast", "{:.2f}")
QUARTILES = Column("quartiles", "quartiles", "{0[0]:.2f} to {0[1]:.2f}")


@dataclass(frozen=True)
class Table:
    """Rows of numbers under a title."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Target:
    """What was aimed at, and what was measured. `wanted` is the least `value`, or the most where `at_most`."""

    name: str
    wanted: float
    value: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


@dataclass
class Answer:
    """What one question's file found."""

    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


def machine(bench: Bench) -> dict[str, Any]:
    """What the numbers depend on; `load` is that of before the run if this is called before it."""
    accelerator = None if bench.device == "cpu" else torch.cuda.get_device_name()
    return {
        "date": date.today().isoformat(),
        "device": bench.device,
        "accelerator": accelerator,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(aliased=True),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mixprec": mixprec.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "clock": bench.clock,
        "quick": bench.quick,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()


def document(machine: Mapping[str, Any], bandwidth: Mapping[str, float], answers: Sequence[Answer]) -> dict[str, Any]:
    """Everything that was found, ready for JSON. The targets were set for a CPU."""
    targets = [target for answer in answers for target in answer.targets if machine["device"] == "cpu"]
    return {
        "schema": SCHEMA,
        "machine": dict(machine),
        "bandwidth": dict(bandwidth),
        "targets": [asdict(target) | {"met": target.met} for target in targets],
        "tables": [asdict(table) for answer in answers for table in answer.tables],
    }
