"""MP036: the inputs are not normalised."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP036",
    name="input-range",
    title="The inputs are not normalised.",
    symptom="The first layer or the pixel loss overflows.",
    evidence=(
        "The largest magnitude in a batch is far above 10, and the first bad op is in the first module or in the loss."
    ),
    fix="Normalise the inputs and targets to about unit size.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/neuroneural/brainchop/issues/56",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
    related=("MP031", "MP131"),
)
