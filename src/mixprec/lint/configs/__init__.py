"""Configuration decides precision too: DeepSpeed's JSON, Accelerate's YAML, and arguments stored as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.records import Finding

__all__ = ["lint_configuration"]


def lint_configuration(text: str, path: str) -> Iterator[Finding]:
    """What the configuration in `text` says about precision that cannot be meant."""
    return iter(())
