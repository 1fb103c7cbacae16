"""The manual's generated parts are those that the rules give, and its own examples are true."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from mixprec.causes import Where, find_cause
from mixprec.cli import main
from mixprec.lint import Rule, all_rules
from mixprec.lint._config import KEYS, parse_config, tomllib
from mixprec.lint._suppress import find_ignores
from mixprec.lint.configs import ConfigRule, config_rules

DOCS = Path(__file__).parents[2] / "docs"
MANUAL = (DOCS / "lint.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script that writes the pages."""
    spec = importlib.util.spec_from_file_location("generate_rules", DOCS / "generate_rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_page_is_up_to_date(generator: ModuleType) -> None:
    """Pages and table are what the generator would write; run it when this fails."""
    assert [str(path.relative_to(DOCS)) for path in generator.stale()] == []


def test_a_stale_page_would_be_seen(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed page, a missing page and a page too many are all told."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "lint.md").write_text(MANUAL, encoding="utf-8")
    monkeypatch.setattr(generator, "DOCS", tmp_path)
    generator.write()
    assert generator.stale() == []
    extra, changed, missing = (tmp_path / "rules" / f"{name}.md" for name in ("MP000", "MP210", "MP290"))
    extra.write_text("")
    changed.write_text("")
    missing.unlink()
    assert generator.stale() == [extra, changed, missing]
    assert generator.main(["--check"]) == 1
    generator.write()
    assert generator.main(["--check"]) == 0
    assert not extra.exists()


def test_links_lead_somewhere() -> None:
    """Every relative link of the manual is a file."""
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", MANUAL):
        assert (DOCS / link).is_file(), link


def test_every_option_is_described() -> None:
    """The table of options names all that the command takes, and nothing else."""
    command = main.get_command(None, "lint")  # type: ignore[arg-type]
    assert command is not None
    taken = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    described = set(re.findall(r"(--[a-z][a-z-]+)", MANUAL.split("## Options")[1].split("## JSON")[0]))
    assert described == taken - {"--help"}


def test_the_json_example_is_what_is_written(tmp_path: Path) -> None:
    """A clean file gives the very document of the example."""
    block = re.search(r"```json\n(.*?)```", MANUAL, re.DOTALL)
    assert block is not None
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    result = CliRunner().invoke(main, ["lint", "--format", "json", str(file)])
    assert list(json.loads(result.output).items()) == list(json.loads(block[1]).items())


def test_the_configuration_example_is_accepted(tmp_path: Path) -> None:
    """The example is read without a complaint and shows every key."""
    block = re.search(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
    assert block is not None
    table = tomllib.loads(block[1])["tool"]["mixprec"]["lint"]
    assert set(table) == set(KEYS)
    parse_config(table, tmp_path)


def test_the_silencing_example_is_read_as_it_says() -> None:
    """The comments of the example are ignore comments with the codes that they name."""
    block = re.search(r"```python\n(.*?)```", MANUAL.split("## Silencing")[1], re.DOTALL)
    assert block is not None
    ignores = find_ignores(block[1])
    assert [sorted(ignore.codes or ()) for ignore in ignores] == [["MP002"], ["MP002", "MP003"], ["MP022"]]
    assert [ignore.lines is None for ignore in ignores] == [False, False, True]
    assert not any(ignore.error for ignore in ignores)


@pytest.mark.parametrize("rule", [*all_rules(), *config_rules()], ids=lambda rule: f"{rule.code}-{rule.__name__}")
def test_a_rule_speaks_of_its_cause(rule: type[Rule] | type[ConfigRule]) -> None:
    """A rule has the code of a cause and its name, unless it shares the code; the catalogue says that lint sees it."""
    cause = find_cause(rule.code)
    sharing = [other for other in all_rules() if other.code == rule.code]
    assert cause.name == rule.name or len(sharing) > 1
    assert Where.LINT in cause.where
