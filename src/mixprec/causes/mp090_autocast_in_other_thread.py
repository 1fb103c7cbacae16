"""MP090: autocast is entered in one thread and the forward pass runs in another."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP090",
    name="autocast-in-other-thread",
    title="Autocast is entered in one thread and the forward pass runs in another.",
    symptom="The replicas of DataParallel, or models in own threads, run in FP32.",
    evidence="Autocast is off in the worker thread, because its state belongs to each thread.",
    fix="Enter autocast inside the module's forward.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    related=("MP080",),
)
