"""Accelerate leaves precision to the DeepSpeed file that it is given, and refuses to be told as well."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding, Severity


class AccelerateAndDeepSpeed(ConfigRule):
    """An Accelerate configuration sets mixed_precision although it hands over to a DeepSpeed file."""

    code = "MP210"
    name = "two-places-decide-precision"
    slug = "accelerate-and-deepspeed"
    severity = Severity.ERROR
    title = "An Accelerate configuration sets mixed_precision beside a DeepSpeed configuration file."
    why = "With deepspeed_config_file, precision belongs into that file; Accelerate stops when it is given here too."
    example = "accelerate.yaml"
    bad = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds_config.json
mixed_precision: bf16
"""
    good = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds_config.json
"""
    sources = ("https://huggingface.co/docs/accelerate/usage_guides/deepspeed",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding, at mixed_precision; the value `no` says nothing."""
        file = config.text_of("deepspeed_config", "deepspeed_config_file")
        precision = config.text_of("mixed_precision")
        if not config.is_accelerate or file is None or precision is None or precision.value in ("no", ""):
            return
        message = (
            f"mixed_precision is {precision.value} here, and {file.value} decides precision too; "
            "Accelerate stops when both do."
        )
        yield self.finding(config, precision, message, f"Remove mixed_precision and set it in {file.value}.")
