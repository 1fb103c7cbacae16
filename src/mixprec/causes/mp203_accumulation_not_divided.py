"""MP203: accumulated losses are not divided by the number of micro-batches."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP203",
    name="accumulation-not-divided",
    title="Accumulated losses are not divided by the number of micro-batches.",
    symptom=(
        "Gradients are as many times too large as there are micro-batches; clipping and SGD feel it, Adam mostly "
        "hides it."
    ),
    evidence="The loop steps once in several iterations, and the mean loss goes to backward() undivided.",
    fix="Divide the loss by the number of micro-batches, or weight it by their sizes.",
    where=(Where.LINT,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://huggingface.co/blog/gradient_accumulation",
    ),
    related=("MP008", "MP204"),
)
