"""MP171: a model is traced or exported inside autocast with the weight cache on."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP171",
    name="export-inside-autocast",
    title="A model is traced or exported inside autocast with the weight cache on.",
    symptom=(
        'torch.jit.trace raises "Cannot insert a Tensor that requires grad as a constant"; torch.onnx.export writes '
        "the casts into the graph."
    ),
    evidence="The trace or export call runs while autocast is active.",
    fix="Export outside the region, or pass cache_enabled=False.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/84092",
        "https://github.com/pytorch/pytorch/issues/50231",
        "https://github.com/pytorch/pytorch/issues/84219",
    ),
    related=("MP087",),
)
