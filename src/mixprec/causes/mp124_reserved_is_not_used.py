"""MP124: memory is read from nvidia-smi, which shows what the allocator holds and not what is used."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP124",
    name="reserved-is-not-used",
    title="Memory is read from nvidia-smi, which shows what the allocator holds and not what is used.",
    symptom="Mixed precision seems to save nothing.",
    evidence="Reserved memory is far above allocated memory.",
    fix="Read torch.cuda.max_memory_allocated().",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-memory-management",),
    related=("MP120",),
)
