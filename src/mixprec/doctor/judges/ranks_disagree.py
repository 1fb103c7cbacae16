"""MP026, MP160: what the scalers of two ranks know differs.

Different numbers of updates: MP160. The same number and different findings of infinity at one step: the finding of a
shard is not shared, MP026.
"""

from __future__ import annotations

from collections.abc import Callable

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Ranks compared step by step, then by their number of updates."""
    arm = observed(examination)
    if arm is None or arm.ranks < 2:
        return None
    return _skipped_alone(examination, arm) or _different_updates(examination, arm) or _sharded(examination, arm)


def _by_rank(arm: Arm) -> dict[int, list[StepRecord]]:
    ranks: dict[int, list[StepRecord]] = {}
    for step in arm.steps:
        if step.scaler is not None and step.finished:
            ranks.setdefault(step.rank, []).append(step)
    return ranks


def _skipped_alone(examination: Examination, arm: Arm) -> Verdict | None:
    ranks = list(_by_rank(arm).values())
    if len(ranks) < 2:
        return None
    for attempts in zip(*ranks, strict=False):
        if len({step.skipped for step in attempts}) > 1:
            return _say_shard(examination, arm, attempts)
    return None


def _is_sharded(arm: Arm) -> bool:
    return any("FullyShardedDataParallel" in module.kind or module.kind.startswith("FSDP") for module in arm.modules)


def _say_shard(examination: Examination, arm: Arm, attempts: tuple[StepRecord, ...]) -> Verdict | None:
    scalers = [scaler for scaler in arm.scalers if scaler.enabled]
    skipped = next(step for step in attempts if step.skipped)
    kept = next(step for step in attempts if not step.skipped)
    return say(
        "MP026",
        "One rank finds an infinity in its shard and skips, the others step: found_inf is not shared between ranks.",
        scalers[0].site if scalers else skipped.site,
        evidence=(
            Evidence(f"step skipped on rank {skipped.rank}", True, arm=arm.name, step=skipped.iteration),
            Evidence(f"step skipped on rank {kept.rank}", False, arm=arm.name, step=kept.iteration),
            Evidence("scaler", scalers[0].kind if scalers else "", arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP026"),
    )


def _sharded(examination: Examination, arm: Arm) -> Verdict | None:
    """No overflow happened, and the plain scaler of a sharded model would not have shared it."""
    scaler = next((s for s in arm.scalers if s.enabled and s.kind == "GradScaler"), None)
    if scaler is None or not _is_sharded(arm) or lint_finding(examination, "MP026") is None:
        return None
    return say(
        "MP026",
        "A sharded model is trained with a plain GradScaler, which does not share found_inf between ranks.",
        scaler.site,
        evidence=(Evidence("scaler", scaler.kind, arm=arm.name), Evidence("ranks", arm.ranks, arm=arm.name)),
    )


def _different_updates(examination: Examination, arm: Arm) -> Verdict | None:
    ranks = _by_rank(arm)
    counts = {rank: len(steps) for rank, steps in ranks.items()}
    limit = max(examination.wanted_steps, 1)
    if len(counts) < 2 or len(set(counts.values())) == 1 or min(counts.values()) >= limit:
        return None
    most = max(counts, key=lambda rank: counts[rank])
    least = min(counts, key=lambda rank: counts[rank])
    if arm.crash is not None or (counts[most] - counts[least] < 2 and arm.ended != "finished"):
        return None
    update = _first(arm, lambda e: e.kind == "update")
    return say(
        "MP160",
        "The ranks make different numbers of scaler updates, so that their scales drift apart.",
        update.site if update else Location(),
        evidence=(
            Evidence(f"updates on rank {most}", counts[most], arm=arm.name),
            Evidence(f"updates on rank {least}", counts[least], arm=arm.name),
            Evidence(f"last scale on rank {most}", ranks[most][-1].scale_after, arm=arm.name),
            Evidence(f"last scale on rank {least}", ranks[least][-1].scale_after, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP160"),
    )


def _first(arm: Arm, wanted: Callable[[Event], bool]) -> Event | None:
    return next((event for event in arm.events if wanted(event)), None)
