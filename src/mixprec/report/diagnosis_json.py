"""The doctor's JSON document: `{"schema", "verdict", "findings", "arms", "healthy", ...}`, keys are only ever added."""

from __future__ import annotations

from typing import Any

from mixprec.doctor import Arm, Diagnosis
from mixprec.report.json import document, plain

__all__ = ["diagnosis_document"]


def diagnosis_document(diagnosis: Diagnosis) -> str:
    """What `mixprec doctor --format json` writes; `docs/json.md` describes it."""
    known = diagnosis.examination
    return document(
        command=known.command,
        healthy=diagnosis.healthy,
        verdict=diagnosis.verdict,
        findings=(*diagnosis.verdicts[1:],),
        problem=diagnosis.problem,
        patch=diagnosis.patch,
        looked_at=diagnosis.looked_at,
        interrupted=diagnosis.interrupted,
        open_question=diagnosis.open_question,
        seconds=round(diagnosis.seconds, 3),
        arms=[_arm(arm) for arm in known.arms],
        lint=known.lint,
    )


def _arm(arm: Arm) -> dict[str, Any]:
    """An arm without its events, which are many and speak of the inside."""
    body = plain(arm)
    body.pop("events")
    return dict(body)
