"""MP110: ops that autocast keeps in FP32 take most of the time."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP110",
    name="fp32-ops-dominate",
    title="Ops that autocast keeps in FP32 take most of the time.",
    symptom="The speed-up is small although matrix products are fast.",
    evidence="Softmax, layer norm and other ops on the FP32 list take a large share of the time.",
    fix="Use fused attention and fused norms, or a policy that keeps norms in half storage.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/66707",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP106", "MP123"),
)
