"""The Trainer of Hugging Face takes fp16 or bf16, and raises when it is given both."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

ARGUMENTS = (
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "DPOConfig",
    "GRPOConfig",
    "ORPOConfig",
    "PPOConfig",
    "RewardConfig",
    "SFTConfig",
)


class TrainerArguments(Rule):
    """`TrainingArguments(fp16=True, bf16=True)`, for training or for evaluation."""

    code = "MP210"
    name = "two-places-decide-precision"
    severity = Severity.ERROR
    title = "TrainingArguments is given both fp16=True and bf16=True."
    why = "TrainingArguments raises: it takes one of the two."
    bad = """\
from transformers import TrainingArguments

arguments = TrainingArguments("out", fp16=True, bf16=True)
"""
    good = """\
from transformers import TrainingArguments

arguments = TrainingArguments("out", bf16=True)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://huggingface.co/docs/transformers/main/en/main_classes/trainer",)
    words = ARGUMENTS

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call and purpose, at the call's bf16."""
        names = tuple(f"{module}.{name}" for module in ("transformers", "trl") for name in ARGUMENTS)
        for call in view.calls(*names):
            for suffix in ("", "_full_eval"):
                given = [view.argument(call, None, f"{dtype}{suffix}") for dtype in ("fp16", "bf16")]
                if given[1] is not None and all(view.constant(value) is True for value in given):
                    message = f"fp16{suffix} and bf16{suffix} are both true; TrainingArguments takes one of them."
                    fix = self.fix(f"Set one of fp16{suffix} and bf16{suffix}.")
                    yield self.finding(view, given[1], message, fix=fix)
