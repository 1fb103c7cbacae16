"""MP017: the checkpoint does not hold the scaler's state."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP017",
    name="scaler-state-not-saved",
    title="The checkpoint does not hold the scaler's state.",
    symptom="Steps are skipped after every resume; loading the empty state of a disabled scaler raises.",
    evidence=(
        "The checkpoint has model and optimizer but no entry for the scaler, and the first steps after the resume "
        "are skipped."
    ),
    fix="Save scaler.state_dict() and restore it when resuming.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP016", "MP170"),
)
