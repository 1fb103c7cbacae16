"""MP101: the sizes of matrix products are not multiples of 8."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP101",
    name="unaligned-shapes",
    title="The sizes of matrix products are not multiples of 8.",
    symptom="Tensor cores are used badly, so the speed-up is small.",
    evidence="A large share of all FLOPs falls on products with a dimension that is not a multiple of 8.",
    fix="Pad vocabulary, hidden size and batch to multiples of 8, better of 64.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",),
    related=("MP106", "MP167"),
)
