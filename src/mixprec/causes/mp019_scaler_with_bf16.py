"""MP019: a loss scaler is enabled although training runs in bfloat16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP019",
    name="scaler-with-bf16",
    title="A loss scaler is enabled although training runs in bfloat16.",
    symptom="Steps may be skipped for nothing, and schedules run ahead of the applied steps.",
    evidence="Autocast runs in bfloat16 and the scaler is enabled.",
    fix="Create the scaler with enabled=(dtype == torch.float16).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    related=("MP001", "MP147"),
)
