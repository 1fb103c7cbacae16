"""One way to call the command line in a test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from mixprec.cli import main


@dataclass(frozen=True)
class Answer:
    """What a call wrote and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@pytest.fixture
def mixprec(monkeypatch):
    """`mixprec("formats", "--format", "json")` -> Answer, as from a pipe that is 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Answer:
        result = CliRunner().invoke(main, list(arguments), prog_name="mixprec")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return call
