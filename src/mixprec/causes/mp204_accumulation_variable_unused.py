"""MP204: accumulation variable unused."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP204",
    name="accumulation-variable-unused",
    title=(
        "The script names a number of accumulation steps but steps in every iteration, or drops the last open window."
    ),
    symptom="The effective batch is smaller than intended, or the last gradients of an epoch leak into the next.",
    evidence="The step is not guarded by the accumulation variable, or the guard has no clause for the last batch.",
    fix="Step when (i + 1) % accumulation_steps == 0 or when the last batch has come.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    related=("MP203", "MP008"),
)
