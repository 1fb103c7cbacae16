"""DeepSpeed scales the loss itself; a script that does so as well scales it twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import ClassVar

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.lint.configs._scripts import calls_in
from mixprec.records import Finding, Severity


class DeepSpeedAndScript(ConfigRule):
    """A DeepSpeed configuration enables fp16, and the script that names it makes a scaler of its own."""

    code = "MP094"
    name = "deepspeed-and-own-amp"
    slug = "deepspeed-and-script"
    severity = Severity.ERROR
    title = "A DeepSpeed configuration enables fp16, and the script that names it makes a GradScaler of its own."
    why = "DeepSpeed scales the loss and unscales the gradients itself; a second scaler multiplies the two scales."
    example = "ds_config.json"
    bad = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": true}
}
"""
    good = """\
{
  "train_batch_size": 16,
  "fp16": {"enabled": false}
}
"""
    beside: ClassVar[Mapping[str, str]] = {
        "train.py": (
            "import deepspeed\nimport torch\n\nscaler = torch.amp.GradScaler('cuda')\n"
            "engine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n"
        )
    }
    sources = ("https://www.deepspeed.ai/docs/config-json/#fp16-training-options",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding per script in the same folder that names this file and has a scaler that is not off."""
        node = config.on("fp16", "enabled")
        if not config.is_deepspeed or node is None:
            return
        for script, source in config.scripts():
            names_it = PurePath(config.path).name in source and "deepspeed" in source
            if names_it and any(not _is_off(call) for call in calls_in(source, "GradScaler")):
                message = (
                    f"DeepSpeed scales the loss here, and {script}, which names this file, makes a GradScaler too."
                )
                yield self.finding(config, node, message, f"Remove the GradScaler from {script}.")


def _is_off(call: ast.Call) -> bool:
    """Whether a scaler is made with an `enabled` that is not literally true, so that it may be off with DeepSpeed."""
    return any(
        keyword.arg == "enabled" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is True)
        for keyword in call.keywords
    )
