"""A script that tells its Accelerator a precision does not listen to the launcher's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.lint.configs._scripts import calls_in
from mixprec.records import Finding, Severity


class AccelerateAndScript(ConfigRule):
    """An Accelerate configuration and a script beside it name different precision."""

    code = "MP210"
    name = "two-places-decide-precision"
    slug = "accelerate-and-script"
    severity = Severity.WARNING
    title = "An Accelerate configuration and a script beside it ask for different precision."
    why = "What the script passes to Accelerator wins, so the launcher's mixed_precision has no effect."
    example = "accelerate.yaml"
    bad = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: fp16
"""
    good = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
"""
    beside: ClassVar[Mapping[str, str]] = {
        "train.py": 'from accelerate import Accelerator\naccelerator = Accelerator(mixed_precision="bf16")\n'
    }
    sources = ("https://huggingface.co/docs/accelerate/package_reference/accelerator",)

    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """One finding per script in the same folder that passes another value, at mixed_precision."""
        node = config.root.get("mixed_precision")
        if not config.is_accelerate or node is None:
            return
        mine = "no" if node.value is False else node.value
        for script, source in config.scripts():
            for theirs in _asked(source):
                if theirs != mine:
                    message = (
                        f"mixed_precision is {mine} here, but {script} passes {theirs!r} to Accelerator, which wins."
                    )
                    advice = f"Leave mixed_precision out of Accelerator(...) in {script}, or write {theirs} here."
                    yield self.finding(config, node, message, advice)


def _asked(source: str) -> Iterator[str]:
    """The literal precisions that a script passes to Accelerator."""
    values = (keyword.value for call in calls_in(source, "Accelerator") for keyword in call.keywords if _is_it(keyword))
    yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _is_it(keyword: ast.keyword) -> bool:
    return keyword.arg == "mixed_precision"
