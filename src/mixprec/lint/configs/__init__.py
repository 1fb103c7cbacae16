"""Configuration decides precision too: DeepSpeed's JSON, Accelerate's YAML, and stored arguments of the Trainer.

Every file beside this one that does not start with an underscore holds one rule; finding them is listing the folder.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping

from mixprec.lint.configs._config_file import ConfigFile
from mixprec.lint.configs._config_rule import ConfigRule
from mixprec.records import Finding

__all__ = ["ConfigFile", "ConfigRule", "config_rules", "lint_configuration"]


@functools.cache
def config_rules() -> tuple[type[ConfigRule], ...]:
    """Every rule for configuration, by code and slug."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ConfigRule) and not inspect.isabstract(value)
    }
    return tuple(sorted(found, key=lambda rule: (rule.code, rule.slug)))


def lint_configuration(text: str, path: str, beside: Mapping[str, str] | None = None) -> list[Finding]:
    """What the configuration in `text` says about precision that cannot be meant, by place.

    A file that is no configuration of a known kind gives nothing. `beside` stands in for the files around it.
    """
    config = ConfigFile(path, text, beside or {})
    found = [finding for rule in config_rules() for finding in rule().check(config)]
    return sorted(found, key=lambda finding: (finding.location.line or 0, finding.location.column or 0, finding.code))
