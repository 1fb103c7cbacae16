"""MP202: the script uses the old torch.cuda.amp or torch.cpu.amp API."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP202",
    name="deprecated-amp-api",
    title="The script uses the old torch.cuda.amp or torch.cpu.amp API.",
    symptom="PyTorch warns in each call, and the names will go away.",
    evidence="autocast, GradScaler, custom_fwd or custom_bwd is taken from torch.cuda.amp or torch.cpu.amp.",
    fix=(
        'Use torch.amp.autocast("cuda", ...), torch.amp.GradScaler("cuda", ...) and '
        'torch.amp.custom_fwd(device_type="cuda").'
    ),
    where=(Where.LINT,),
    raises="warns",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP206",),
)
