"""Every page runs: Python is executed, what it prints is compared, commands print what is shown, links resolve.

A fenced block is one of these. Anything else on a page is a mistake that `test_no_block_is_left_out` names.

- `python`: runs on its own, with `model`, `optimizer`, `loader` and `loss_fn` given, warnings being errors.
- `python wrong`: runs too; it shows what not to do.
- `python raises=NAME`: must end with that exception.
- `python torchrun`: runs with the environment variables of a torchrun with one process.
- `text output`: what the Python block before it prints; a line of dots stands for any lines.
- `console`: each `$ mixprec ...` is run in the repository's root and must print the lines shown.
- `console recorded`: what a script of docs/ has run and written; its test is test_tutorial.py.
- `text`, `toml`, `ini`, `json`, `yaml`, `bash`: not run; TOML, JSON and YAML are parsed.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import sys
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner

from mixprec.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {"json.md", "lint.md"}
"""Pages of docs/ whose blocks have tests of their own."""

PAGES = sorted(
    [
        *(page for page in DOCS.glob("*.md") if page.name not in ELSEWHERE),
        *DOCS.glob("guides/*.md"),
        *DOCS.glob("how-it-works/*.md"),
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
    ]
)
PARSERS = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
LANGUAGES = {"python", "console", "text", "bash", "ini", *PARSERS}


def blocks(*languages):
    """(page, block) of every block in these languages, as test parameters named by page and line."""
    from_pages = [(page, block) for page in PAGES if page.exists() for block in fenced(page)]
    return [
        pytest.param(page, block, id=f"{page.relative_to(ROOT)}:{block['line']}")
        for page, block in from_pages
        if block["language"] in languages
    ]


def fenced(page):
    """Every block of a page: language, words after it, text, line, and the output block that follows it, if any."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    parts = [
        {"language": m[1], "words": m[2].split(), "text": m[3], "line": text.count("\n", 0, m.start(3)) + 1}
        for m in found
    ]
    for part, following in zip(parts, [*parts, {"language": "", "words": []}][1:], strict=True):
        shown = following["language"] == "text" and following["words"] == ["output"]
        part["output"] = following["text"] if shown else None
    return parts


def test_no_block_is_left_out():
    """Every fence has a language that is known here, and every output follows the Python that prints it."""
    for page in PAGES:
        before = ""
        for block in fenced(page) if page.exists() else ():
            assert block["language"] in LANGUAGES, f"{page}:{block['line']}"
            assert block["words"] != ["output"] or before == "python", f"{page}:{block['line']}"
            before = block["language"]


@pytest.fixture
def given():
    """What a reader has before a block: a model, an optimizer, data, a loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return {
        "__name__": "page",
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-2),
        "loader": [(torch.randn(8, 16), torch.randint(4, (8,))) for _ in range(8)],
        "loss_fn": torch.nn.functional.cross_entropy,
    }


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_a_python_block_runs_and_prints_what_is_shown(page, block, given, capsys, monkeypatch, tmp_path):
    """The block runs to its end, or to the exception that it names, and prints exactly the output block below it."""
    monkeypatch.chdir(tmp_path)
    if "torchrun" in block["words"]:
        for name, value in one_rank().items():
            monkeypatch.setenv(name, value)
    forget_accelerators()
    code = compile("\n" * (block["line"] - 1) + block["text"], str(page), "exec")
    expected = next((word.partition("=")[2] for word in block["words"] if word.startswith("raises=")), None)
    try:
        if expected is None:
            exec(code, given)
        else:
            assert raised_by(code, given) == expected
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        forget_accelerators()
    if block["output"] is not None:
        printed = capsys.readouterr().out
        assert same(block["output"], printed), f"printed:\n{printed}"


def forget_accelerators():
    """Accelerate keeps the first precision of a process for good; here a block is a program of its own."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)


def raised_by(code, names):
    """The name of the exception that code ends with, None if it ends without one."""
    try:
        exec(code, names)
    except Exception as error:
        return type(error).__name__
    return None


def one_rank():
    """The environment that torchrun would give the only process of a run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return dict(zip(names, ("0", "0", "1", "1", "127.0.0.1", str(port)), strict=True))


@pytest.mark.parametrize(("page", "block"), blocks("console"))
def test_a_command_prints_what_is_shown(page, block, monkeypatch):
    """`$ mixprec ...` ends with 0 or 1 and prints each line shown, in that order."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    for command, shown in calls(block["text"]):
        program, *arguments = shlex.split(command.partition(" #")[0])
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if program != "mixprec" or not shown.strip() or "recorded" in block["words"]:
            continue
        result = CliRunner().invoke(main, arguments, prog_name="mixprec")
        assert result.exit_code in (0, 1), result.output
        assert same(shown, result.output), f"{command} printed:\n{result.output}"


@pytest.mark.parametrize(("page", "block"), blocks("console"))
def test_every_command_shown_exists_with_its_options(page, block):
    """The subcommand and each long option of a shown `mixprec` call are those of the command line."""
    for command, _ in calls(block["text"]):
        words = shlex.split(command.partition(" #")[0])
        if words[:1] == ["mixprec"] and words[1:2] and not words[1].startswith("-"):
            found = main.get_command(None, words[1])
            assert found is not None, command
            known = {option for parameter in found.params for option in parameter.opts} | {"--help"}
            given, _, _ = " ".join(words[2:]).partition(" -- ")
            own = re.match(r"(?:--?\S+(?: \S+)??\s*)*", given)
            assert {w.partition("=")[0] for w in own[0].split() if w.startswith("--")} <= known, command


def calls(text):
    """(command, output shown) of a console block: a command starts with `$ `, what follows is its output."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def same(shown, printed):
    """Whether the lines shown are those printed; a line `...` skips any number of lines, nothing else does."""
    wanted = [line.rstrip() for line in shown.rstrip().splitlines()]
    pattern = "\n".join("(?:.*\n)*?.*" if line == "..." else re.escape(line) for line in wanted)
    return re.fullmatch(pattern + r"\s*", "\n".join(line.rstrip() for line in printed.splitlines())) is not None


def test_a_wrong_output_would_be_caught():
    """The comparison can fail: a changed number, a line too few, a line too many."""
    assert same("a 1\n...\nc 3\n", "a 1\nb 2\nc 3\n")
    assert not same("a 1\nb 3\n", "a 1\nb 2\n")
    assert not same("a 1\n", "a 1\nb 2\n")
    assert not same("a 1\nb 2\n", "a 1\n")


@pytest.mark.parametrize(("page", "block"), blocks(*PARSERS))
def test_a_configuration_is_well_formed(page, block):
    """TOML, JSON and YAML parse."""
    assert PARSERS[block["language"]](block["text"]) is not None


def anchors(page):
    """What the headings of a page can be linked by, as GitHub and our site make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page):
    """The relative links of a page that lead to no file or no heading."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


LINKED = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize("page", LINKED, ids=[str(page.relative_to(ROOT)) for page in LINKED])
def test_links_resolve(page):
    """Every relative link of every page leads to a file, and to a heading where it names one."""
    assert broken(page) == []


def test_a_broken_link_would_be_caught(tmp_path):
    """The check can fail: a missing file and a missing heading are named; what exists is not."""
    (tmp_path / "b.md").write_text("# A `code` title, here\n")
    page = tmp_path / "a.md"
    page.write_text("# Top\n[1](b.md#a-code-title-here) [2](b.md#gone) [3](c.md) [4](#top) `[5](d.md)`\n")

    assert broken(page) == ["b.md#gone", "c.md"]
