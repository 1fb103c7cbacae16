"""MP069: random numbers are drawn directly in half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP069",
    name="noise-in-half",
    title="Random numbers are drawn directly in half precision.",
    symptom="Runs in different precision differ from the first step, and diffusion models lose quality.",
    evidence="A random generator is called with a 16-bit dtype; the values are others than the FP32 ones rounded.",
    fix="Draw in FP32 and cast the result.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
    related=("MP065",),
)
