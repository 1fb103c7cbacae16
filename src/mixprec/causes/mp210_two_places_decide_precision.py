"""MP210: two places decide the precision, and they do not agree."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP210",
    name="two-places-decide-precision",
    title="Two places decide the precision, and they do not agree.",
    symptom="One of them wins silently, or both act and the loss is scaled twice.",
    evidence=(
        "Two settings that exclude each other are on, in one file or in two: fp16 with bf16, a launcher's "
        "mixed_precision with the script's, a framework's precision with hand-written autocast."
    ),
    fix="Keep the decision in one place.",
    where=(Where.LINT,),
    raises="silent",
    sources=(
        "https://www.deepspeed.ai/docs/config-json/",
        "https://huggingface.co/docs/accelerate/package_reference/accelerator",
        "https://huggingface.co/docs/transformers/main/en/main_classes/trainer",
    ),
    related=("MP094", "MP147"),
)
