"""What does it cost to be watched? A training step of a tiny and a medium GPT, bare and at each level of the monitor.

Most steps are ordinary, and every so-many-th is looked at in detail. Both kinds are timed for each level, in races of
their own, and its cost is their mean as its interval mixes them. The race of the ordinary steps has the bare step
twice: what the two differ by, nobody's watching has cost.

A turn is several steps in a row, after one that is not timed: in a training every step follows one of its own, and
finds its code and data where that left them. A single step between those of other models does not. A turn ends when
what it left has been recorded; of the tiny model it has as many steps as a monitor records at once, those of 0.2 s.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks import small_gpt
from benchmarks.harness import Answer, Bench, Column, Contender, Race, Table, Target
from mixprec import Monitor
from mixprec._taps import listen
from mixprec.monitor import LEVELS, Level

BARE, AGAIN = "bare step", "bare step, again"
ANOMALY, DEBUG = "torch.autograd.set_detect_anomaly", "transformers DebugUnderflowOverflow"
AIMS: Mapping[str, float] = {"light": 1.02, "standard": 1.05}
SECONDS = 80.0

COLUMNS = (
    Column("contender", ""),
    Column("median_ms", "median ms", "{:.4g}"),
    Column("cost", "of the bare step", "{:.3f}"),
    Column("quartiles", "quartiles", "{0[0]:.3f} to {0[1]:.3f}"),
    Column("looked_ms", "looked at, ms", "{:.4g}"),
    Column("every", "every … steps"),
    Column("rounds", "rounds"),
)


@dataclass(frozen=True)
class Size:
    """A model and its batch. Ops that are too small to be shared out run on one of the `threads`: what two cores have
    to say to each other varies by more than a monitor takes.
    """

    name: str
    title: str
    width: int
    blocks: int
    heads: int
    context: int
    batch: int
    turn: int
    threads: int | None = None


SIZES = (
    Size("tiny", "tiny GPT: 2 blocks, width 64, 4×64 tokens, one thread", 64, 2, 2, 64, 4, turn=24, threads=1),
    Size("medium", "medium GPT: 4 blocks, width 256, 8×256 tokens", 256, 4, 4, 256, 8, turn=2),
)


class Ordinary(Level):
    """No step is looked at."""

    def looks_at(self, step: int) -> bool:
        return False

    @classmethod
    def like(cls, level: Level) -> Ordinary:
        return cls(**vars(level))


class Watched:
    """A model that is trained in bfloat16 with a loss scaler, and a monitor that is heard only in its own turn."""

    heard: Watched | None = None

    def __init__(self, size: Size, device: str, level: Level | None = None, folder: str | None = None) -> None:
        torch.manual_seed(0)
        self.device, self.turn = device, size.turn
        self.model = small_gpt.SmallGPT(
            width=size.width, blocks=size.blocks, heads=size.heads, context=size.context
        ).to(device)
        self.text, self.next = (part.to(device) for part in small_gpt.batch(size.batch, context=size.context))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.scaler = torch.amp.GradScaler(device, init_scale=2.0**8)
        self.monitor: Monitor | None = None
        if level is not None:
            self.monitor = Monitor(self.model, self.optimizer, level=level, folder=folder)
            self.monitor._listening.remove()

    def prepare(self) -> None:
        """Taps are the whole process's: those of the last contender are taken out. Then a step that is not timed."""
        self.be_heard()
        self.step()
        self.settle()

    def settle(self) -> None:
        """Everything that was heard is recorded."""
        if self.monitor is not None:
            self.monitor.flush()

    def be_heard(self) -> None:
        if Watched.heard is self:
            return
        if Watched.heard is not None and Watched.heard.monitor is not None:
            Watched.heard.monitor._listening.remove()
        if self.monitor is not None:
            self.monitor._listening = listen(self.monitor._steps)
        Watched.heard = self

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16):
            loss = small_gpt.next_byte_loss(self.model(self.text), self.next)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def contender(self, name: str, call: Callable[[], object] | None = None) -> Contender:
        step = call or self.step

        def take_turn() -> None:
            for _ in range(self.turn):
                step()
            self.settle()

        return Contender(name, take_turn, self.prepare)


def run(bench: Bench, bandwidth: float) -> Answer:
    """One table per size; a level that was promised has to keep to it."""
    answer = Answer()
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, _threads(size.threads):
            often = per_step(bench.race(frequent(size, bench.device, folder), seconds=SECONDS), size.turn)
            seldom = per_step(bench.race(rare(size, bench.device, folder), seconds=SECONDS / 2), size.turn)
        _finish()
        rows = [level_row(often, seldom, level) for level in LEVELS.values()]
        rows += [
            _row(BARE, often.times[BARE], costs(often, BARE)),
            _row(AGAIN, often.times[AGAIN], costs(often, AGAIN)),
        ]
        rows += [
            _row(name, seldom.times[name], costs(seldom, name)) for name in (ANOMALY, DEBUG) if name in seldom.times
        ]
        answer.tables.append(Table(f"monitor_{size.name}", f"Under a monitor, {size.title}", COLUMNS, rows))
        answer.targets += _targets(size, rows)
    return answer


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def per_step(race: Race, turn: int) -> Race:
    """`race` with the seconds of a step in place of those of a turn."""
    return Race({name: [seconds / turn for seconds in times] for name, times in race.times.items()})


def _finish() -> None:
    if Watched.heard is not None and Watched.heard.monitor is not None:
        Watched.heard.monitor._listening.remove()
    Watched.heard = None


def _targets(size: Size, rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    measured = {row["contender"]: row["cost"] for row in rows}
    return [
        Target(f"monitor, {level} on the {size.name} model: of the bare step", aim, measured[level], at_most=True)
        for level, aim in AIMS.items()
    ]


def frequent(size: Size, device: str, folder: str) -> list[Contender]:
    """What nearly every step is: bare, bare once more (which shows how far a ratio can be trusted), or an ordinary one
    of each level.
    """
    watched = {ordinary(level.name): Ordinary.like(level) for level in LEVELS.values() if level.every > 1}
    return [
        Watched(size, device).contender(BARE),
        Watched(size, device).contender(AGAIN),
        *(Watched(size, device, level, f"{folder}/{name}").contender(name) for name, level in watched.items()),
    ]


def rare(size: Size, device: str, folder: str) -> list[Contender]:
    """The bare step, one that is looked at for each level, and the peers."""
    watched = {looked_at(level.name): replace(level, every=1) for level in LEVELS.values()}
    return [
        Watched(size, device).contender(BARE),
        *(Watched(size, device, level, f"{folder}/{name}").contender(name) for name, level in watched.items()),
        _anomaly(Watched(size, device)),
        *([_debug(Watched(size, device))] if importlib.util.find_spec("transformers") else []),
    ]


def ordinary(level: str) -> str:
    """The name of an ordinary step."""
    return f"ordinary step, {level}"


def looked_at(level: str) -> str:
    """The name of a step that is looked at."""
    return f"step looked at, {level}"


def _anomaly(watched: Watched) -> Contender:
    def call() -> None:
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            watched.step()

    return watched.contender(ANOMALY, call)


def _debug(watched: Watched) -> Contender:
    """It prints when it finds something; here there is nothing to find."""
    from transformers.debug_utils import DebugUnderflowOverflow

    kept = DebugUnderflowOverflow(watched.model)

    def call() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            watched.step()
        return kept

    return watched.contender(DEBUG, call)


def costs(race: Race, name: str) -> list[float]:
    """Seconds of `name` as multiples of the bare step's, in the same round."""
    return [own / bare for own, bare in zip(race.times[name], race.times[BARE], strict=True)]


def mixed(often: Race, seldom: Race, level: Level) -> list[float]:
    """What the mean step of `level` costs, by round of its ordinary steps."""
    looked = costs(seldom, looked_at(level.name))
    if level.every == 1:
        return looked
    rare_one = statistics.median(looked)
    return [(plain * (level.every - 1) + rare_one) / level.every for plain in costs(often, ordinary(level.name))]


def level_row(often: Race, seldom: Race, level: Level) -> dict[str, Any]:
    """A level's row: its mean step as a multiple of the bare one."""
    times = seldom.times[looked_at(level.name)] if level.every == 1 else often.times[ordinary(level.name)]
    return {
        **_row(level.name, times, mixed(often, seldom, level)),
        "looked_ms": seldom.median(looked_at(level.name)) * 1e3,
        "every": level.every,
    }


def _row(name: str, times: Sequence[float], ratios: Sequence[float]) -> dict[str, Any]:
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "contender": name,
        "median_ms": statistics.median(times) * 1e3,
        "cost": median,
        "quartiles": [low, high],
        "rounds": len(times),
    }
