"""MP107: convolutions do not use the fast layout or algorithm."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP107",
    name="slow-convolutions",
    title="Convolutions do not use the fast layout or algorithm.",
    symptom="A convolutional model gains little from half precision.",
    evidence="Convolutions take most of the time, run in contiguous NCHW format, and cudnn.benchmark is off.",
    fix="Set torch.backends.cudnn.benchmark and use channels_last.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",),
    related=("MP106",),
)
