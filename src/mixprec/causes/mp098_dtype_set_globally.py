"""MP098: a global default or a loading option puts the model into half precision without anyone noticing."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP098",
    name="dtype-set-globally",
    title="A global default or a loading option puts the model into half precision without anyone noticing.",
    symptom="The script looks like mixed precision, but its weights are 16-bit.",
    evidence='Parameters are half although the code uses autocast; set_default_dtype or torch_dtype="auto" was given.',
    fix="Load the model in FP32 for training.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://huggingface.co/docs/transformers/main/en/main_classes/model",
        "https://github.com/huggingface/transformers/issues/34743",
    ),
    related=("MP084", "MP061"),
)
