"""MP136: a checkpoint is loaded with `strict=False` and its names fit nowhere, so that the weights are still random."""

from __future__ import annotations

from mixprec.doctor._arm import Event, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Verdict

PREFIXED = 0.5
"""Share of the places left empty whose names the checkpoint has under another prefix, from which on it is no choice."""


def judge(examination: Examination) -> Verdict | None:
    """The last load into a module of its kind that took nothing, or left out what differs in its prefix only."""
    arm = observed(examination)
    if arm is None:
        return None
    last = {event.data["of"]: event for event in arm.events if event.kind == "weights_restored"}
    for event in last.values():
        if _nothing_fits(event) or _prefixed(event):
            return _say(event, arm.name)
    return None


def _nothing_fits(event: Event) -> bool:
    data = event.data
    return bool(data["given"] and data["missing"] and data["unexpected"] == data["given"])


def _prefixed(event: Event) -> bool:
    moved, missing = event.data["moved"], event.data["missing"]
    return bool(moved > 1 and moved >= PREFIXED * missing)


def _say(event: Event, arm: str) -> Verdict:
    data = event.data
    taken = data["given"] - data["unexpected"]
    return say(
        "MP136",
        f"load_state_dict(strict=False) took {taken} of the {data['given']} tensors that it was given; "
        "the others have names that the model does not know, and its own weights stay as they were.",
        event.site,
        evidence=(
            Evidence("tensors in the checkpoint", data["given"], arm=arm),
            Evidence("of these without a place", data["unexpected"], arm=arm),
            Evidence("a name in the checkpoint", ", ".join(data["first_unexpected"][:1]), arm=arm),
            Evidence("a name in the model that got nothing", ", ".join(data["first_missing"][:1]), arm=arm),
        ),
        confidence=Confidence.CONFIRMED,
    )
