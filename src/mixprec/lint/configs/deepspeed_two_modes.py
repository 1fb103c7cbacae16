"""DeepSpeed has several precision modes and takes one."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._json_spans import Node
from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding, Severity

MODES = ("fp16", "bf16", "bfloat16", "amp", "torch_autocast")


class DeepSpeedTwoModes(ConfigRule):
    """Two sections of a DeepSpeed configuration switch precision on."""

    code = "MP210"
    name = "two-places-decide-precision"
    slug = "deepspeed-two-modes"
    severity = Severity.ERROR
    title = "Two precision modes are enabled in one DeepSpeed configuration."
    why = "DeepSpeed stops with an assertion when fp16, bf16, amp and torch_autocast are not used one at a time."
    example = "ds_config.json"
    bad = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": true},
  "bf16": {"enabled": true}
}
"""
    good = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": false},
  "bf16": {"enabled": true}
}
"""
    sources = ("https://www.deepspeed.ai/docs/config-json/",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding, at the later of the modes that are on."""
        if not config.is_deepspeed:
            return
        on = sorted(_enabled(config), key=lambda item: item[1].start)
        if len(on) > 1:
            names = " and ".join(name for name, _ in on)
            message = f"{names} are enabled together; DeepSpeed takes one of them."
            yield self.finding(config, on[-1][1], message, f"Enable one of {names}.")


def _enabled(config: ConfigFile) -> Iterator[tuple[str, Node]]:
    for mode in MODES:
        node = config.on(mode, "enabled")
        if node is not None:
            yield mode, node
