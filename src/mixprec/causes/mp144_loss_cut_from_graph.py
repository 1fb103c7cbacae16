"""MP144: the loss is cut off from the graph, so no parameter gets a gradient."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP144",
    name="loss-cut-from-graph",
    title="The loss is cut off from the graph, so no parameter gets a gradient.",
    symptom=(
        'Without a scaler nothing is ever learnt; with one PyTorch raises "No inf checks were recorded for this '
        'optimizer."'
    ),
    evidence=(
        "The graph of the loss reaches no parameter: it was rebuilt from numbers, by item(), detach(), NumPy or "
        "torch.tensor."
    ),
    fix="Keep tensors to the end, for example torch.stack(losses).mean().",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP143", "MP145", "MP014"),
)
