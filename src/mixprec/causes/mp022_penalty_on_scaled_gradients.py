"""MP022: a gradient penalty is computed from gradients that still carry the loss scale."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP022",
    name="penalty-on-scaled-gradients",
    title="A gradient penalty is computed from gradients that still carry the loss scale.",
    symptom="The penalty is tens of thousands of times too large and drowns the loss, or it is infinite.",
    evidence=(
        "autograd.grad() is called on scaler.scale(loss) with create_graph=True and its result is used without "
        "dividing by the scale."
    ),
    fix="Multiply the gradients by 1 / scaler.get_scale() before building the penalty.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
    related=("MP002", "MP023"),
)
