"""MP143, MP144, MP145: an optimizer is stepped and none of its parameters has a gradient.

PyTorch says the same of all three. If the parameters never get one because they belong to no model that ran, or
because others of that model do which no optimizer holds, the optimizer holds others than those that are trained; if
nobody's do, the loss is cut off from the graph; if they do in other iterations or others do in this one, this
iteration does not use them.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination, OptimizerRecord
from mixprec.doctor.judges._crash import crash_says, described, here
from mixprec.doctor.judges._protocol import last
from mixprec.doctor.judges._reading import event_run, observed, optimizer_of
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Verdict

WORDS = {
    "MP143": "An optimizer is stepped in an iteration in which none of its parameters has a gradient.",
    "MP144": "The loss is cut off from the graph: backward reaches no parameter, and nothing is learned.",
    "MP145": "The optimizer holds other parameters than those that are trained: they never get a gradient.",
}


def judge(examination: Examination) -> Verdict | None:
    """The optimizer whose step failed, or one that steps and steps without a gradient."""
    cut = crash_says(examination, r"does not require grad and does not have a grad_fn")
    if cut is not None:
        lint = lint_finding(examination, "MP144")
        at = lint.location if lint is not None else here(cut[1])
        evidence = (described(cut[1], cut[0]),)
        return say("MP144", WORDS["MP144"], at, evidence=evidence, confidence=Confidence.CONFIRMED)
    found = crash_says(examination, r"No inf checks were recorded")
    if found is not None:
        arm, crash = found
        event = last(event_run(arm, crash.rank), "scaler_step")
        optimizer = optimizer_of(arm, event.optimizer, crash.rank) if event else None
        if event is None or optimizer is None or not _gradless(arm, optimizer, crash.iteration):
            return None
        code = _cause(arm, optimizer)
        at = event.site if code == "MP143" else _place(arm, code, optimizer)
        return say(
            code,
            WORDS[code],
            at,
            evidence=(described(crash, arm), *_facts(arm, optimizer)),
            confidence=Confidence.CONFIRMED,
        )
    return _silent(examination)


def _gradless(arm: Arm, optimizer: OptimizerRecord, iteration: int) -> bool:
    """Whether the attempt that failed found no gradient at all."""
    mine = [s for s in arm.of(optimizer.optimizer, optimizer.rank) if s.iteration >= iteration]
    return not mine or mine[-1].gradless >= optimizer.parameters


def _cause(arm: Arm, optimizer: OptimizerRecord) -> str:
    if optimizer.parameters_with_grad_ever:
        return "MP143"
    if optimizer.parameters_of_model == 0 or optimizer.orphans:
        return "MP145"
    others = [o for o in arm.optimizers if o.rank == optimizer.rank and o.optimizer != optimizer.optimizer]
    return "MP143" if any(o.parameters_with_grad_ever for o in others) else "MP144"


def _place(arm: Arm, code: str, optimizer: OptimizerRecord) -> Location:
    if code == "MP145":
        return optimizer.site
    backward = last(event_run(arm, optimizer.rank), "backward")
    return _where_cut(arm, backward) or (backward.site if backward else optimizer.site)


def _where_cut(arm: Arm, backward: Event | None) -> Location | None:
    """The line that made the tensor that backward began at, if it is a leaf that the script made."""
    made = backward.data.get("leaf_site") if backward else None
    return Location(file=made["file"], line=made["line"]) if isinstance(made, dict) else None


def _facts(arm: Arm, optimizer: OptimizerRecord) -> list[Evidence]:
    return [
        Evidence("parameters of the optimizer", optimizer.parameters, arm=arm.name),
        Evidence("of these in a model that ran", optimizer.parameters_of_model, arm=arm.name),
        Evidence("of these that ever got a gradient", optimizer.parameters_with_grad_ever, arm=arm.name),
        *([Evidence("with a gradient, in no optimizer", optimizer.orphans, arm=arm.name)] if optimizer.orphans else []),
    ]


def _silent(examination: Examination) -> Verdict | None:
    """Without a scaler nobody complains: the optimizer steps and nothing ever changes."""
    arm = observed(examination)
    for optimizer in arm.optimizers if arm is not None else ():
        assert arm is not None
        steps = [s for s in arm.of(optimizer.optimizer, optimizer.rank) if s.finished]
        if len(steps) < 3 or optimizer.parameters_with_grad_ever or not optimizer.parameters:
            continue
        if not any(event.kind == "backward" for event in arm.events):
            continue
        if any(s.scaler is not None for s in steps):
            continue
        code = _cause(arm, optimizer)
        return say(
            code,
            WORDS[code],
            optimizer.site if code != "MP144" else _place(arm, code, optimizer),
            evidence=[*_facts(arm, optimizer), Evidence("steps that changed nothing", len(steps), arm=arm.name)],
            confidence=Confidence.CONFIRMED,
        )
    return None
