"""MP166: compiled backward under autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP166",
    name="compiled-backward-under-autocast",
    title=(
        "The backward of a compiled region runs under the caller's autocast and ignores an inner "
        "autocast(enabled=False)."
    ),
    symptom="Gradients are infinite or rounded when compiled, and right in eager mode.",
    evidence=(
        "Eager gradients are finite and compiled ones are not, with the aot_eager backend too; "
        'backward_pass_autocast = "off" removes it.'
    ),
    fix='Set torch._functorch.config.backward_pass_autocast = "off", or enter autocast inside the compiled module.',
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/153044",
        "https://github.com/pytorch/pytorch/issues/179804",
    ),
    related=("MP095", "MP083"),
)
