"""MP126: the work space of cuDNN or cuBLAS grew."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP126",
    name="workspace-grows",
    title="The work space of cuDNN or cuBLAS grew.",
    symptom="Peak memory rises with half precision.",
    evidence="The memory snapshot attributes the growth to work space.",
    fix="Limit it, for example with CUBLAS_WORKSPACE_CONFIG, or switch cudnn.benchmark off.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces",),
    related=("MP124",),
)
