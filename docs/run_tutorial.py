"""Run the scripts and commands of docs/tutorial.md and write what they print into it.

Run: python docs/run_tutorial.py [--check] [NAME...]; names of scripts in docs/tutorial, all by default.
Only what is the same in every run is kept: the first finding, without times and without the table of arms.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from generated import between, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
COMMANDS = {
    "healthy": (),
    "crawl": ("mixprec lint docs/tutorial/crawl.py",),
    "overflow": ("mixprec doctor --fast --steps 20 docs/tutorial/overflow.py",),
    "flat": ("mixprec doctor --fast --steps 20 docs/tutorial/flat.py",),
    "stuck": ("mixprec doctor --fast --steps 20 docs/tutorial/stuck.py",),
    "padding": ("mixprec doctor --fast --steps 20 docs/tutorial/padding.py",),
    "nothing_gained": ("mixprec audit docs/tutorial/nothing_gained.py",),
}
"""Each script and the command that names its fault, if it has one."""


def printed(words: list[str]) -> str:
    """What a command prints, as on a terminal of 88 columns, with paths from the repository's root."""
    environment = {**os.environ, "COLUMNS": "88", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{shlex.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.replace(f"{ROOT}/", "").splitlines())


def first_finding(text: str) -> str:
    """What is said first and stays the same: up to the first empty line after a line that names a code."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if re.search(r"\bMP\d{3}\b", line))
    end = next((index for index in range(start, len(lines)) if not lines[index].strip()), len(lines))
    kept = lines[start:end]
    return "\n".join([*kept, "..."] if any(line.strip() for line in lines[end:]) else kept)


def products(text: str) -> str:
    """Of an audit the table of products: which layers computed in which dtype. Counts are the same in every run."""
    table = text[text.index("Products by layer") :].partition("\n\n")[0]
    return f"{first_finding(text)}\n{table}\n..."


def chapter(name: str) -> str:
    """The script, what it prints, the command, and what that prints."""
    script = f"docs/tutorial/{name}.py"
    source = (ROOT / script).read_text(encoding="utf-8").strip("\n")
    parts = ["```python", source, "```", ""]
    parts += ["```console recorded", f"$ python {script}", printed([script]), "```"]
    for command in COMMANDS[name]:
        shown = printed(["-m", *shlex.split(command)])
        found = products(shown) if command.startswith("mixprec audit") else first_finding(shown)
        parts += ["", "```console recorded", f"$ {command}", found, "```"]
    return "\n".join(parts).rstrip("\n")


def outputs(names: Iterable[str] = COMMANDS) -> Mapping[Path, str]:
    """The page, with the chapters of these scripts as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    for name in names:
        text = between(text, name, chapter(name))
    return {PAGE: text}


if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")] or list(COMMANDS)
    made = outputs(chosen)
    sys.exit(run(lambda: made, sys.argv[1:]))
