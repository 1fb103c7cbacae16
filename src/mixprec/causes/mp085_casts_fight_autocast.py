"""MP085: casts inside the forward pass work against autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP085",
    name="casts-fight-autocast",
    title="Casts inside the forward pass work against autocast.",
    symptom="Training is slower, and precision is lost or gained at random places.",
    evidence="Activations are cast by half(), float() or to(dtype) inside an autocast region.",
    fix="Remove the casts; for a part that must be FP32, use autocast(enabled=False) around it.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP086", "MP105", "MP168"),
)
