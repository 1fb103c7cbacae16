"""Options come from the nearest configuration, are checked in full, and mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixprec.causes import all_causes, cause_names
from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.lint import Rule, all_rules
from mixprec.lint._config import KEYS, LintConfig, expand, find_config, parse_config
from mixprec.records import Finding, Severity


def _write(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)


def test_every_key_is_read(tmp_path: Path) -> None:
    """Each key of the table reaches the option of its name."""
    _write(
        tmp_path,
        """
        [tool.mixprec.lint]
        select = ["MP0", "unused-ignore"]
        ignore = ["mp002"]
        exclude = ["third_party/"]
        baseline = "known.json"
        level = "error"
        respect-gitignore = false
        [tool.mixprec.lint.per-file-ignores]
        "tests/**" = ["MP022"]
        """,
    )
    config = find_config(tmp_path / "src")
    assert config == LintConfig(
        root=tmp_path,
        select=("MP0", "unused-ignore"),
        ignore=("mp002",),
        exclude=("third_party/",),
        baseline="known.json",
        level=Severity.ERROR,
        respect_gitignore=False,
        per_file_ignores={"tests/**": ("MP022",)},
    )
    assert len(KEYS) == 7, "a new key belongs into this test"
    assert "MP002" not in config.codes
    assert {"MP003", "MP290"} <= config.codes
    assert "MP100" not in config.codes


def test_the_nearest_table_counts(tmp_path: Path) -> None:
    """An inner pyproject.toml without the table leaves the outer one in force; without any, defaults at the root."""
    _write(tmp_path, "[tool.mixprec.lint]\nignore = ['MP002']\n")
    _write(tmp_path / "inner", "[project]\nname = 'x'\n")
    assert find_config(tmp_path / "inner" / "a.py").ignore == ("MP002",)
    _write(tmp_path, "[tool.other]\n")
    assert find_config(tmp_path / "inner").root == tmp_path / "inner"
    assert find_config(tmp_path / "inner").select == ("ALL",)


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        ({"selct": []}, UnknownNameError, "did you mean 'select'"),
        ({"select": "MP002"}, InvalidValueError, "a list of strings"),
        ({"select": [1]}, InvalidValueError, "a list of strings"),
        ({"select": ["MP9"]}, UnknownNameError, "MP9"),
        ({"ignore": ["clip-before-unscal"]}, UnknownNameError, "clip-before-unscale"),
        ({"level": "errors"}, InvalidValueError, "error, warning, info"),
        ({"baseline": 3}, InvalidValueError, "a string"),
        ({"respect-gitignore": "yes"}, InvalidValueError, "true or false"),
        ({"per-file-ignores": []}, InvalidValueError, "a table"),
        ({"per-file-ignores": {"a": "MP002"}}, InvalidValueError, "a list of strings"),
        ({"per-file-ignores": {"a": ["nope"]}}, UnknownNameError, "nope"),
        ([], InvalidValueError, "a table"),
    ],
)
def test_what_is_not_accepted_is_refused(table: object, error: type[Exception], words: str, tmp_path: Path) -> None:
    """A wrong key, kind or code is refused with what is accepted; the nearest right table is read."""
    with pytest.raises(error, match=words):
        parse_config(table, tmp_path)
    assert parse_config({}, tmp_path) == LintConfig(tmp_path)


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    """A configuration that cannot be read stops the run instead of being passed over."""
    _write(tmp_path, "[tool.mixprec.lint\n")
    with pytest.raises(InvalidValueError, match=r"pyproject\.toml"):
        find_config(tmp_path)


def test_selectors_name_codes() -> None:
    """A selector is a code, the beginning of codes, a name, or ALL, in any case."""
    assert expand(["MP002"]) == expand(["mp002"]) == expand(["clip-before-unscale"]) == {"MP002"}
    assert expand(["ALL"]) == expand(["all"]) == expand(["MP"]) == {cause.code for cause in all_causes()}
    assert expand(["MP00"]) == {f"MP00{digit}" for digit in range(1, 10)}
    assert expand([]) == frozenset()


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_every_rule_can_be_named(rule: type[Rule]) -> None:
    """A rule's own name selects its code, also where several rules share one."""
    assert expand([rule.name]) == {rule.code}


@pytest.mark.parametrize("selector", ["", " ", "clip", "X"])
def test_an_empty_or_partial_name_names_nothing(selector: str) -> None:
    """Only codes may be shortened."""
    with pytest.raises(UnknownNameError):
        expand([selector])


def test_names_from_files_are_those_of_the_causes() -> None:
    """The cheap list of codes and names is the catalogue's."""
    assert cause_names() == {cause.code: cause.name for cause in all_causes()}


def _reported(config: LintConfig, path: str = "a.py") -> set[tuple[str, Severity]]:
    wanted = config.wanted(path)
    both = [Finding(code, "n", severity, "m") for code in ("MP002", "MP003") for severity in Severity]
    return {(f.code, f.severity) for f in both if f.code in wanted.codes and wanted.reports(f)}


def test_the_level_and_the_selection_decide_what_is_reported(tmp_path: Path) -> None:
    """Without a level: warnings and errors, and everything of a code that is named. With one: from there on."""
    error, warning, info = Severity.ERROR, Severity.WARNING, Severity.INFO
    loud = {("MP002", error), ("MP002", warning), ("MP003", error), ("MP003", warning)}
    assert _reported(LintConfig(tmp_path)) == loud
    assert _reported(LintConfig(tmp_path, select=("ALL", "MP002"))) == {*loud, ("MP002", info)}
    assert _reported(LintConfig(tmp_path, select=("MP002",))) == {("MP002", each) for each in Severity}
    assert _reported(LintConfig(tmp_path, select=("MP002",), level=warning)) == {("MP002", error), ("MP002", warning)}
    assert _reported(LintConfig(tmp_path, level=error)) == {("MP002", error), ("MP003", error)}
    assert _reported(LintConfig(tmp_path, level=info, per_file_ignores={"a.py": ("MP002",)})) == {
        ("MP003", each) for each in Severity
    }


def test_per_file_ignores_follow_gitignore_patterns(tmp_path: Path) -> None:
    """A pattern covers the files below a folder that it names; several patterns add up."""
    config = LintConfig(tmp_path, per_file_ignores={"tests/": ("MP002",), "*_old.py": ("MP003",)})
    assert config.ignored_in("tests/a/b.py") == {"MP002"}
    assert config.ignored_in("tests/a_old.py") == {"MP002", "MP003"}
    assert config.ignored_in("src/a.py") == frozenset()
