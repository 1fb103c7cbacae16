"""MP173: autocast casts an expanded view and thereby allocates it in full."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP173",
    name="expanded-view-materialised",
    title="Autocast casts an expanded view and thereby allocates it in full.",
    symptom="The memory of the forward pass grows with the batch.",
    evidence="A cast writes far more bytes than the storage of its input holds, because a stride of the input is 0.",
    fix="Cast before expand(), or rely on broadcasting.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/issues/85698",),
    related=("MP121", "MP105"),
)
