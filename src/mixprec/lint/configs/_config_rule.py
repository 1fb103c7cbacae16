"""A rule for configuration is one file as well: code, reasons, examples and its check."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import ClassVar

from mixprec.lint._json_spans import Node
from mixprec.lint.configs._config_file import ConfigFile
from mixprec.records import Finding, Fix, Severity

__all__ = ["ConfigRule"]


class ConfigRule(abc.ABC):
    """One kind of finding in a configuration file.

    `code` and `name` are the cause's. `slug` tells rules of one code apart. `bad` and `good` are texts of a file
    called `example`; `beside` are the files that the example names.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    slug: ClassVar[str]
    severity: ClassVar[Severity]
    title: ClassVar[str]
    why: ClassVar[str]
    example: ClassVar[str]
    bad: ClassVar[str]
    good: ClassVar[str]
    beside: ClassVar[Mapping[str, str]] = {}
    sources: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def check(self, config: ConfigFile) -> Iterator[Finding]:
        """What this rule finds in `config`, in any order."""

    def finding(self, config: ConfigFile, node: Node, message: str, advice: str) -> Finding:
        """A finding of this rule at a value, with what to do in words; configuration is not edited unasked."""
        return Finding(self.code, self.name, self.severity, message, config.location(node), fix=Fix(advice))
