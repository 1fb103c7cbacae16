"""MP083: backward() is called inside the autocast region."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP083",
    name="backward-inside-autocast",
    title="backward() is called inside the autocast region.",
    symptom="It is mostly harmless, but ops in backward may run in another dtype than their forward.",
    evidence="The call of backward() stands inside the region.",
    fix="Move it one level out.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP088",),
)
