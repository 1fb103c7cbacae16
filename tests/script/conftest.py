"""A stand-in for torch that imports in no time, and a way to run a script beside it."""

from __future__ import annotations

import os
import textwrap

import pytest

from mixprec._script import Command, run_script

ENTRY = """
import os
from mixprec._script import child

def entry(options):
    import torch
    say(f"entry knows torch {torch.VERSION} and {options}")
    return lambda: say("exit")

def say(text):
    with open(child.record_file(), "a") as file:
        print(text, file=file)

def fails(options):
    raise ValueError("this entry fails")
"""


@pytest.fixture
def run(tmp_path):
    """`run(source, *argv, **options of run_script)` -> (Outcome, what the entries of all processes said)."""
    scripts = tmp_path / "scripts"
    (scripts / "torch").mkdir(parents=True)
    (scripts / "torch" / "__init__.py").write_text("VERSION = 'stand-in'\nfrom torch import nn\n")
    (scripts / "torch" / "nn.py").write_text("")
    (scripts / "the_entry.py").write_text(ENTRY)

    def run(source, *argv, module=False, entry="the_entry:entry", options=None, **more):
        (scripts / "script.py").write_text(textwrap.dedent(source))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(scripts), os.environ.get("PYTHONPATH", "")])}
        name = "script" if module else "script.py"
        outcome = run_script(
            Command((name, *argv), module=module),
            entry=entry,
            options={"answer": 42} if options is None else options,
            folder=tmp_path / "records",
            cwd=scripts,
            env=more.pop("env", env),
            **{"timeout": 30, **more},
        )
        said = {path.name: path.read_text().splitlines() for path in sorted((tmp_path / "records").glob("*.jsonl"))}
        return outcome, said

    return run
