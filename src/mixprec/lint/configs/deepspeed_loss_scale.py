"""DeepSpeed's loss scaler takes numbers that make no sense without a word."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding, Severity

SHORTEST_WINDOW = 10
LARGEST_POWER = 32
"""DeepSpeed's own examples start at 2^32; beyond that the first steps are skipped for nothing."""


class DeepSpeedLossScale(ConfigRule):
    """The loss scale of a DeepSpeed configuration cannot work as written."""

    code = "MP200"
    name = "scaler-arguments"
    slug = "deepspeed-loss-scale"
    severity = Severity.WARNING
    title = "The fp16 section of a DeepSpeed configuration has a loss scale that makes no sense."
    why = "A short window makes every few steps a probe that overflows, and a huge first scale skips the first steps."
    example = "ds_config.json"
    bad = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 2}
}
"""
    good = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000}
}
"""
    sources = ("https://www.deepspeed.ai/docs/config-json/#fp16-training-options",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding per number outside what can work; sections that are off say nothing."""
        if not config.is_deepspeed or config.on("fp16", "enabled") is None:
            return
        for key, (least, most) in BOUNDS.items():
            given = config.number("fp16", key)
            if given is None or least <= given[1] <= most:
                continue
            limit = f"at least {least:g}" if given[1] < least else f"at most {most:g}"
            message = f"{key} is {given[1]:g}; what works is {limit}."
            yield self.finding(config, given[0], message, f"Leave {key} out; DeepSpeed's default is right.")


BOUNDS = {
    "hysteresis": (1.0, float("inf")),
    "initial_scale_power": (0.0, float(LARGEST_POWER)),
    "loss_scale": (0.0, 2.0**LARGEST_POWER),
    "loss_scale_window": (float(SHORTEST_WINDOW), float("inf")),
    "min_loss_scale": (0.0, 2.0**LARGEST_POWER),
}
