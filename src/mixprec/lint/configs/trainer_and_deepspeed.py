"""The Trainer and the DeepSpeed file that it names must ask for the same precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding, Severity


class TrainerAndDeepSpeed(ConfigRule):
    """Stored arguments of the Trainer ask for another precision than the DeepSpeed file that they name."""

    code = "MP210"
    name = "two-places-decide-precision"
    slug = "trainer-and-deepspeed"
    severity = Severity.ERROR
    title = "Stored arguments of the Trainer and their DeepSpeed file ask for different precision."
    why = 'The Trainer compares the two and stops when they differ; "auto" in the DeepSpeed file follows the arguments.'
    example = "train_args.json"
    bad = """\
{
  "output_dir": "out",
  "learning_rate": 1e-4,
  "bf16": true,
  "deepspeed": "ds_config.json"
}
"""
    good = """\
{
  "output_dir": "out",
  "learning_rate": 1e-4,
  "fp16": true,
  "deepspeed": "ds_config.json"
}
"""
    beside: ClassVar[Mapping[str, str]] = {"ds_config.json": '{"train_batch_size": 16, "fp16": {"enabled": true}}\n'}
    sources = ("https://huggingface.co/docs/transformers/main/en/deepspeed",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding, at the argument that the file contradicts; a file that is not there says nothing."""
        named = config.text_of("deepspeed")
        other = None if named is None or not config.is_trainer else config.other(named.value)
        if named is None or other is None:
            return
        for mine, theirs in (("fp16", "bf16"), ("bf16", "fp16")):
            asked = config.on(mine)
            if asked is not None and other.on(theirs, "enabled") is not None and other.on(mine, "enabled") is None:
                message = f"{mine} is true here, and {named.value} enables {theirs}."
                yield self.finding(config, asked, message, f'Ask for {theirs}, or write "auto" in {named.value}.')
