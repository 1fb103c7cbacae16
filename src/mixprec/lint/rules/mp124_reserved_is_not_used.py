"""Reserved memory is what the allocator holds, not what tensors use."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

RESERVED = ("torch.cuda.max_memory_reserved", "torch.cuda.memory_reserved", "torch.cuda.memory_cached")


class ReservedIsNotUsed(Rule):
    """`torch.cuda.memory_reserved()` where nothing asks for the allocated memory."""

    code = "MP124"
    name = "reserved-is-not-used"
    severity = Severity.INFO
    title = "Memory is measured as reserved, never as allocated."
    why = "The allocator keeps freed blocks, so reserved memory (as nvidia-smi shows it) hides what 16 bits save."
    bad = """\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    torch.nn.Linear(8, 8)(torch.ones(1, 8))
print(torch.cuda.memory_reserved())
"""
    good = """\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    torch.nn.Linear(8, 8)(torch.ones(1, 8))
print(torch.cuda.max_memory_allocated())
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call, in a file with AMP."""
        if "memory_allocated" in view.source or not ("autocast" in view.source or "GradScaler" in view.source):
            return
        for call in view.calls(*RESERVED):
            message = "This counts memory that the allocator holds, used or not."
            yield self.finding(view, call, message, fix=self.fix("Read torch.cuda.max_memory_allocated()."))
