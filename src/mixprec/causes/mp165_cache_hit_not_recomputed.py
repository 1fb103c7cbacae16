"""MP165: cache hit not recomputed."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP165",
    name="cache-hit-not-recomputed",
    title=(
        "Autocast's cache served a weight in the forward pass, and selective checkpointing misses that cast in the "
        "recompute."
    ),
    symptom="PyTorch raises that aten._to_copy.default was met in backward but not found in storage.",
    evidence=(
        "The recompute issues a cast that the forward pass did not; it passes with cache_enabled=False, and without "
        "the selective policy."
    ),
    fix="Pass cache_enabled=False to that region.",
    where=(Where.RUN,),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/193338",
        "https://github.com/pytorch/pytorch/issues/141896",
    ),
    related=("MP089",),
)
