"""The README runs: its Python is executed, its commands print what it shows, its two languages say the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from mixprec.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def numbered(language: str) -> list:
    """(line in README.md, text) of its blocks in that language, as test parameters named by line."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [pytest.param(m[1], id=f"line {README.count(chr(10), 0, m.start(1)) + 1}") for m in found]


def given() -> dict:
    """What a reader has before a block: a model, an optimizer, data, a loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return {
        "__name__": "readme",
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2),
        "loader": [(torch.randn(8, 16), torch.randint(4, (8,))) for _ in range(8)],
        "loss_fn": torch.nn.functional.cross_entropy,
    }


@pytest.mark.parametrize("code", numbered("python"))
def test_a_python_block_runs_and_trains(code, capsys):
    """The block runs on a CPU with nothing but a model, an optimizer, data and a loss, and moves the parameters."""
    names = given()
    before = [parameter.detach().clone() for parameter in names["model"].parameters()]

    exec(compile(code, "README.md", "exec"), names)

    moved = [not torch.equal(old, new) for old, new in zip(before, names["model"].parameters(), strict=True)]
    if "for inputs, targets in loader" in code:
        assert all(moved)


def test_there_is_something_to_run():
    """The README shows a loop, accumulation, the drop-in and a policy in Python, and commands with their output."""
    assert len(numbered("python")) >= 4
    assert len(numbered("console")) >= 4


def calls(block: str) -> list[tuple[str, str]]:
    """(command, output shown) of a console block: a command starts with `$ `, what follows is its output."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("block", numbered("console"))
def test_a_command_prints_what_is_shown(block, monkeypatch):
    """`$ mixprec ...` is run; each line shown is printed, in that order (a line of dots stands for any lines)."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    for command, shown in calls(block):
        program, *arguments = shlex.split(command.partition(" #")[0])
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            continue
        if program != "mixprec":
            continue
        result = CliRunner().invoke(main, arguments, prog_name="mixprec")
        assert result.exit_code in (0, 1), result.output
        assert in_order(shown, result.output), f"{command} printed:\n{result.output}"


def in_order(shown: str, printed: str) -> bool:
    """Whether the lines shown are lines printed, in order; `...` skips any number of lines, nothing else does."""
    lines = [re.escape(line.rstrip()) for line in shown.rstrip().splitlines()]
    pattern = "\n".join("(?:.*\n)*?.*" if line == re.escape("...") else line for line in lines)
    text = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.match(pattern, text) is not None


def test_a_wrong_output_would_be_caught():
    """The comparison can fail: a changed number, a missing line and a changed order are each seen."""
    printed = "name  value\nfp16  1.0\nbf16  2.0\nend\n"

    assert in_order("name  value\n...\nend\n", printed)
    assert in_order("name  value\nfp16  1.0\n", printed)
    assert not in_order("name  value\nfp16  1.5\n", printed)
    assert not in_order("name  value\nbf16  2.0\n", printed)
    assert not in_order("name  value\n...\nbf16  2.0\nfp16  1.0\n", printed)


def test_the_translation_has_the_same_shape_and_code(markdown):
    """README.zh-CN.md has the same headings by level, the same code blocks word for word, and the same links."""
    english, chinese = markdown("README.md"), markdown("README.zh-CN.md")

    assert [level for level, _ in chinese.headings] == [level for level, _ in english.headings]
    assert [b.text for b in chinese.blocks] == [b.text for b in english.blocks]
    own = [link.replace(".zh-CN.md", ".md") for link in chinese.links if link != "README.md"]
    assert own == [link for link in english.links if link != "README.zh-CN.md"]


def test_the_chinese_runbook_says_what_the_english_one_says(markdown):
    """Same sections by number and order, same first commands, same codes in each; steps by hand are in English only."""
    english, chinese = markdown("docs/runbook.md"), markdown("docs/runbook.zh-CN.md")
    parts = [re.split(r"^## ", page.text, flags=re.MULTILINE) for page in (english, chinese)]

    assert len(parts[1]) == len(parts[0]) - 1
    for ours, theirs in zip(parts[1], parts[0], strict=False):
        assert set(re.findall(r"MP\d{3}", ours)) <= set(re.findall(r"MP\d{3}", theirs))
        commands = [re.findall(r"^\| [^|]+ \| (`mixprec \w+)", part, re.MULTILINE) for part in (ours, theirs)]
        assert commands[0] == commands[1]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CHANGELOG.md", "docs/README.md", "docs/json.md"])
def test_local_links_lead_somewhere(markdown, name):
    """Every link to a file of this repository points at one that exists."""
    page = markdown(name)
    local = [link.partition("#")[0] for link in page.links if not link.startswith(("https://", "#"))]

    assert [link for link in local if not (page.path.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_command_is_in_the_table(markdown, name):
    """The table has one row per command of the command line, and none besides."""
    listed = re.findall(r"^\| `mixprec ([a-z-]+)", markdown(name).text, re.MULTILINE)

    assert sorted(listed) == sorted(main.list_commands(None))
