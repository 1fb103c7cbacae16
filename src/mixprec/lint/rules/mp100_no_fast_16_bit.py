"""is_bf16_supported says yes where bfloat16 is only emulated, which is slower than float16 and than float32."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

FLAG_SINCE = (2, 6)


class NoFast16Bit(Rule):
    """`torch.cuda.is_bf16_supported()` without `including_emulation=False`."""

    code = "MP100"
    name = "no-fast-16-bit"
    severity = Severity.INFO
    title = "is_bf16_supported() counts GPUs that only emulate bfloat16."
    why = "On V100, T4 and RTX 20xx it is true, and bfloat16 runs through float32 there: slower than float16."
    bad = """\
import torch

dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
"""
    good = """\
import torch

dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_bf16_supported.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py",
    )
    words = ("is_bf16_supported",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call, where the project does not accept a PyTorch without the flag."""
        if view.project.may_run_below(FLAG_SINCE):
            return
        for call in view.calls("torch.cuda.is_bf16_supported"):
            if not call.args and not call.keywords:
                text = f"{view.text(call.func)}(including_emulation=False)"
                fix = self.fix("Ask for hardware support.", view.edit.replace(call, text))
                yield self.finding(view, call, "This is true on GPUs that only emulate bfloat16.", fix=fix)
