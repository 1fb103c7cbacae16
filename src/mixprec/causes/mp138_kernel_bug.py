"""MP138: one version of a kernel or library computes wrongly."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP138",
    name="kernel-bug",
    title="One version of a kernel or library computes wrongly.",
    symptom="NaN or large errors appear for some shapes with one backend only.",
    evidence="The math backend is clean on the same inputs and the fast one fails.",
    fix="Pin or upgrade that version, or switch the backend.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/103749",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html",
    ),
    related=("MP132", "MP043"),
)
