"""MP109: debugging switches are left on."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP109",
    name="debugging-left-on",
    title="Debugging switches are left on.",
    symptom="Training runs about 1.7 to 1.85 times slower, as anomaly detection did when it was measured on a CPU.",
    evidence="Anomaly detection, deterministic algorithms or similar checks are on.",
    fix="Switch them off when you are done debugging.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
    related=("MP104",),
)
