"""MP089: activation checkpointing recomputes under another autocast state than the forward pass had."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP089",
    name="checkpoint-in-other-autocast-state",
    title="Activation checkpointing recomputes under another autocast state than the forward pass had.",
    symptom=(
        "PyTorch raises that recomputed tensors have different metadata, or the recompute silently runs in another "
        "dtype."
    ),
    evidence="The dtype of the recomputed tensors differs from that of the forward pass.",
    fix="Use use_reentrant=False, enter autocast inside the checkpointed function, or pass context_fn.",
    where=(Where.RUN,),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/141896",
        "https://github.com/pytorch/pytorch/issues/148831",
        "https://github.com/pytorch/pytorch/issues/159359",
        "https://github.com/facebookresearch/fairscale/issues/1199",
    ),
    related=("MP165", "MP092"),
)
