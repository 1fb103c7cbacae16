"""Does a scale that follows the gradients' largest magnitude lose fewer steps, and fewer small gradients, than torch's?

Answered twice: on recorded streams, where both rules see the same gradients, and by trainings of the same examples.
Neither depends on how fast the machine is, so both were recorded once: `record_streams.py`, `record_trainings.py`.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness import Answer, Bench, Column, Table
from benchmarks.streams import DATA, FP16_OVERFLOW, Stream, streams
from mixprec import presets
from mixprec._headroom import HeadroomRules, HeadroomState, advance_headroom
from mixprec._loss_scale import Rules, State, advance, initial

RULES: Mapping[str, Rules | HeadroomRules] = {
    "torch": presets.get("torch").rules,
    "torch from 2^24": replace(presets.get("torch").rules, init_scale=2.0**24),
    "headroom, 1 bit": HeadroomRules(bits=1),
    "headroom, 3 bits": HeadroomRules(bits=3),
}
"""Without knowing the gradients one can also start high: what is too high comes down by one bit per lost step."""

FACTORS = (-12, -6, 0, 6, 12)
"""Powers of 2: as if the loss were a mean over more elements, or a sum; then the scale is far off in the beginning."""

REPLAY_COLUMNS = (
    Column("stream", "stream"),
    Column("rules", "rules"),
    Column("lost", "steps lost"),
    Column("last_lost", "last lost"),
    Column("zero", "zero", "{:.3%}"),
    Column("subnormal", "subnormal", "{:.2%}"),
    Column("mean_log2", "mean log2 scale", "{:.1f}"),
    Column("low", "lowest", "2^{:.0f}"),
    Column("high", "highest", "2^{:.0f}"),
)
SHIFTED_COLUMNS = (
    Column("factor", "gradients times", "2^{:d}"),
    Column("rules", "rules"),
    Column("lost", "steps lost of all"),
    Column("zero", "zero", "{:.3%}"),
    Column("subnormal", "subnormal", "{:.2%}"),
)
TRAINING_COLUMNS = (
    Column("example", "example"),
    Column("rules", "rules"),
    Column("loss", "final loss, mean", "{:.4f}"),
    Column("loss_low", "lowest", "{:.4f}"),
    Column("loss_high", "highest", "{:.4f}"),
    Column("lost", "steps lost", "{:.1f}"),
)


def run(bench: Bench, bandwidth: float) -> Answer:
    """Recorded streams, the same ones multiplied, and trainings that were recorded with them."""
    recorded = streams()
    as_they_were = [replay(stream, name) for stream in recorded for name in RULES]
    multiplied = [_together(recorded, name, factor) for factor in FACTORS for name in RULES]
    trained = json.loads((DATA / "trainings.json").read_text(encoding="utf-8"))
    of_steps = f"recorded streams of {recorded[0].steps} steps"
    in_training = f"Loss-scale rules in trainings of the examples in fp16-mixed, {trained['seeds']} seeds each"
    return Answer(
        [
            Table("headroom_replay", f"Loss-scale rules on {of_steps}", REPLAY_COLUMNS, as_they_were),
            Table("headroom_shifted", f"All {of_steps}, multiplied", SHIFTED_COLUMNS, multiplied),
            Table("headroom_training", in_training, TRAINING_COLUMNS, trained["rows"]),
        ]
    )


# On recorded streams


@dataclass(frozen=True)
class Follower:
    """A rule set with its state: what both kinds of rules have in common."""

    rules: Rules | HeadroomRules
    state: State
    peak: float = 0.0

    @classmethod
    def start(cls, rules: Rules | HeadroomRules) -> Follower:
        return cls(rules, initial(rules if isinstance(rules, Rules) else rules.base))

    def advance(self, found_inf: bool, largest: float) -> Follower:
        """Past a step whose scaled gradients were at most `largest`."""
        if isinstance(self.rules, Rules):
            return Follower(self.rules, advance(self.rules, self.state, found_inf)[0])
        state, _ = advance_headroom(self.rules, HeadroomState(self.state, self.peak), found_inf, largest)
        return Follower(self.rules, state.base, state.peak)


def replay(stream: Stream, name: str, factor: int = 0) -> dict[str, Any]:
    """What `stream`, times 2**`factor`, would have lost under the rules called `name`."""
    follower, lost_steps, scales = Follower.start(RULES[name]), [], []
    zero = subnormal = counted = 0
    for step in range(stream.steps):
        scale = follower.state.scale
        scales.append(math.log2(scale))
        in_all = math.ldexp(scale, factor)
        found_inf = stream.reach(step) * in_all >= FP16_OVERFLOW
        follower = follower.advance(found_inf, float(stream.weights_amax[step]) * in_all)
        lost = stream.lost(step, in_all)
        if found_inf:
            lost_steps.append(step)
        elif lost is not None:
            zero, subnormal, counted = zero + lost[0], subnormal + lost[1], counted + lost[2]
    return {
        "stream": stream.name,
        "rules": name,
        "lost": len(lost_steps),
        "last_lost": lost_steps[-1] if lost_steps else None,
        "zero": zero / counted if counted else None,
        "subnormal": subnormal / counted if counted else None,
        "mean_log2": statistics.mean(scales),
        "low": min(scales),
        "high": max(scales),
    }


def _together(recorded: Sequence[Stream], name: str, factor: int) -> dict[str, Any]:
    """Steps lost in all streams; shares of lost elements, each stream counting alike."""
    rows = [replay(stream, name, factor) for stream in recorded]
    shares = {key: statistics.mean(row[key] for row in rows) for key in ("zero", "subnormal")}
    return {"factor": factor, "rules": name, "lost": sum(row["lost"] for row in rows)} | shares
