"""MP102: the GPU waits for the host or for data."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP102",
    name="host-or-data-bound",
    title="The GPU waits for the host or for data.",
    symptom="A step takes the same time in FP32 and in half precision.",
    evidence="The GPU is idle for a large part of each step.",
    fix="Use more loader workers, larger batches, torch.compile or CUDA graphs.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
    related=("MP104", "MP167"),
)
