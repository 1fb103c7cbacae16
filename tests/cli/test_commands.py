"""Every file of the folder is a command, described without being imported, and every failure is one message."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mixprec.cli
from mixprec import __version__

FOLDER = Path(mixprec.cli.__file__).parent
COMMANDS = sorted(path.stem.replace("_", "-") for path in FOLDER.glob("[a-z]*.py"))


def test_the_version_is_the_packages(mixprec):
    """`mixprec --version` prints the name and the version, and nothing else."""
    assert mixprec("--version").out == f"mixprec {__version__}\n"


def test_help_lists_every_file_of_the_folder_with_its_first_sentence(mixprec):
    """`mixprec --help` names each command, and says what its file's docstring says first."""
    answer = mixprec("--help")

    assert answer.code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]\w+ ", answer.out, re.MULTILINE), command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(mixprec, command):
    """`mixprec COMMAND --help` succeeds, has a sentence about the command, and offers text and JSON."""
    answer = mixprec(command, "--help")

    assert answer.code == 0
    assert re.search(r"^  [A-Z][^\n]+", answer.out, re.MULTILINE)
    assert re.search(r"--format \[text\|json", answer.out), answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_an_unknown_command_is_answered_with_the_closest(mixprec):
    """A mistyped command ends with exit code 2 and one line on stderr that names the right one."""
    answer = mixprec("formts")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "mixprec: error: command is 'formts'; accepted is a known name; did you mean 'formats'? "
        "`mixprec --help` describes them.\n"
    )


def test_an_error_of_ours_is_one_message_without_a_traceback():
    """As a process: exit code 2, nothing on stdout, one line on stderr."""
    run = subprocess.run(
        [sys.executable, "-m", "mixprec", "explain", "MP9999"], capture_output=True, text=True, timeout=60
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("mixprec: error: op or cause is 'MP9999'; accepted is ")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["formats", "1e-8"], ["presets"], ["policy", "torch"], ["explain", "MP002"]])
def test_a_pipe_gets_80_columns_and_no_colour(arguments):
    """Piped output has no escape codes and no line over 80 columns, but for links, which are never broken."""
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    run = subprocess.run(
        [sys.executable, "-m", "mixprec", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
    )

    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert [line for line in run.stdout.splitlines() if len(line) > 80 and "https://" not in line] == []


@pytest.mark.parametrize(("setting", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_colour_is_for_terminals_and_obeys_no_color(setting, coloured):
    """Where colour is forced, escape codes for colours appear; where NO_COLOR is set as well, they do not."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", setting: "1"}
    if setting != "NO_COLOR":
        environment.pop("NO_COLOR", None)
    code = (
        "from mixprec.report.text import console, finding_text; from mixprec.records import Finding, Severity;"
        "console().print(finding_text(Finding('MP001', 'name', Severity.ERROR, 'text')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)

    assert run.returncode == 0, run.stderr
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", run.stdout)) is coloured


def test_output_survives_an_ascii_terminal():
    """A terminal that knows ASCII only gets an answer, not a UnicodeEncodeError."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    run = subprocess.run(
        [sys.executable, "-m", "mixprec", "formats"], capture_output=True, text=True, timeout=60, env=environment
    )

    assert run.returncode == 0, run.stderr
