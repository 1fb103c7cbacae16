"""MP087: a pass without gradients fills the region's cache with casts that lead to no weight (PyTorch before 2.11).

Source: the cache keeps no cast that was made without a graph since https://github.com/pytorch/pytorch/pull/165068.
"""

from __future__ import annotations

import re

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._protocol import between, on_ranks
from mixprec.doctor.judges._reading import low_regions, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """In one region a pass without gradients, then one with; and parameters of the model that never get a gradient."""
    arm = observed(examination)
    if arm is None or not any(region.cache for region in low_regions(arm)) or _repaired(arm):
        return None
    starved = next((o for o in arm.optimizers if 0 < o.parameters_with_grad_ever < o.parameters), None)
    silent = next((o for o in arm.optimizers if o.parameters_of_model and not o.parameters_with_grad_ever), None)
    lacking = starved or silent
    if lacking is None or not any(step.gradless for step in arm.steps):
        return None
    for events in on_ranks(arm):
        for enters in (event for event in events if event.kind == "region_entered" and event.data.get("enabled")):
            quiet = _pass_without_gradients(events, enters)
            if quiet is not None:
                return _say(examination, arm, quiet, lacking.parameters - lacking.parameters_with_grad_ever)
    return None


def _repaired(arm: Arm) -> bool:
    """Whether this PyTorch is too new to have the fault; an unknown one may have it."""
    numbers = re.match(r"(\d+)\.(\d+)", str(arm.facts.get("torch", "")))
    return numbers is not None and tuple(map(int, numbers.groups())) >= (2, 11)


def _pass_without_gradients(events: tuple[Event, ...], enters: Event) -> Event | None:
    """The forward pass without a graph that comes before one with a graph in the same entry of a region."""
    later = next((e for e in events if e.index > enters.index and e.kind in ("region_entered", "backward")), None)
    passes = [e for e in between(events, enters, later) if e.kind == "forward_begin" and e.data.get("in_region")]
    return passes[0] if len(passes) > 1 and not passes[0].data.get("grad") and passes[-1].data.get("grad") else None


def _say(examination: Examination, arm: Arm, quiet: Event, without: int) -> Verdict:
    return say(
        "MP087",
        "A pass without gradients fills the region's cache, and the pass after it reads casts that lead to no weight.",
        quiet.site,
        evidence=(
            Evidence("parameters that never get a gradient", without, arm=arm.name),
            Evidence("version of torch", str(arm.facts.get("torch")), arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP087"),
    )
