"""The Trainer of Hugging Face takes fp16 or bf16."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding, Severity


class TrainerTwoModes(ConfigRule):
    """Stored arguments of the Trainer switch on both fp16 and bf16."""

    code = "MP210"
    name = "two-places-decide-precision"
    slug = "trainer-two-modes"
    severity = Severity.ERROR
    title = "Stored arguments of the Trainer enable fp16 and bf16."
    why = "TrainingArguments raises when both are true."
    example = "train_args.yaml"
    bad = """\
output_dir: out
learning_rate: 1.0e-4
fp16: true
bf16: true
"""
    good = """\
output_dir: out
learning_rate: 1.0e-4
bf16: true
"""
    sources = ("https://huggingface.co/docs/transformers/main/en/main_classes/trainer",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding for training and one for evaluation, each at the later of the two."""
        if not config.is_trainer:
            return
        for suffix in ("", "_full_eval"):
            names = [f"fp16{suffix}", f"bf16{suffix}"]
            on = [node for name in names if (node := config.on(name)) is not None]
            if len(on) == 2:
                message = f"{names[0]} and {names[1]} are both true; TrainingArguments takes one of them."
                later = max(on, key=lambda node: node.start)
                yield self.finding(config, later, message, f"Set one of {names[0]} and {names[1]}.")
