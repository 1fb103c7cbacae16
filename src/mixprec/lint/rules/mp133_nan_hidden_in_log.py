"""The Trainer of Hugging Face can replace a NaN in the logged loss, which then looks healthy."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.rules.mp210_trainer_arguments import ARGUMENTS
from mixprec.records import Finding, Severity


class NanHiddenInLog(Rule):
    """`TrainingArguments(logging_nan_inf_filter=True)`."""

    code = "MP133"
    name = "nan-hidden-in-log"
    severity = Severity.INFO
    title = "The Trainer is told to hide NaN and infinite losses in its log."
    why = "A step with a NaN loss is logged with the average of the others, so a diverged run looks like a good one."
    bad = """\
from transformers import TrainingArguments

arguments = TrainingArguments("out", fp16=True, logging_nan_inf_filter=True)
"""
    good = """\
from transformers import TrainingArguments

arguments = TrainingArguments("out", fp16=True, logging_nan_inf_filter=False)
"""
    fix_safety = FixSafety.SAFE
    sources = ("https://huggingface.co/docs/transformers/main/en/main_classes/trainer",)
    words = ("logging_nan_inf_filter",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        names = tuple(f"{module}.{name}" for module in ("transformers", "trl") for name in ARGUMENTS)
        for call in view.calls(*names):
            node = view.argument(call, None, "logging_nan_inf_filter")
            if node is not None and view.constant(node) is True:
                fix = self.fix("Let NaN show.", view.edit.replace(node, "False"))
                yield self.finding(view, node, "NaN and infinite losses are left out of the log.", fix=fix)
