"""MP080: autocast is created but never takes effect."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP080",
    name="autocast-without-effect",
    title="Autocast is created but never takes effect.",
    symptom="There is no gain in speed or memory, and no message.",
    evidence=(
        "No matrix product runs in half precision: the autocast object is not entered, it does not wrap the forward "
        "pass, or it names another device type."
    ),
    fix='Put the forward pass and the loss inside "with torch.autocast(device_type, dtype=...):".',
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP081", "MP090"),
)
