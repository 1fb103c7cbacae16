"""MP134: nan_to_num or a masked loss hides NaN."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP134",
    name="nan-replaced",
    title="nan_to_num or a masked loss hides NaN.",
    symptom="Training goes on, but what it learns from the hidden places is noise.",
    evidence="An op has NaN among its inputs and none in its output.",
    fix="Find where the NaN arises.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nan_to_num.html",),
    related=("MP133", "MP046"),
)
