"""A run may have another text for a file of the script's, and no file is changed."""

from __future__ import annotations

import textwrap

import pytest


def test_the_script_itself_runs_with_another_text(run, tmp_path):
    """Its name, its file, its arguments, its path and its line numbers are those of the script."""
    outcome, said = run(
        "print('old')",
        "--lr",
        "1",
        replace={
            "script.py": "import sys, torch\n"
            "print(__name__, __file__, sys.argv, sys.path[0].endswith('scripts'))\n"
            "raise RuntimeError('at line 3')\n"
        },
    )

    assert outcome.returncode == 1
    assert outcome.output.startswith("__main__ script.py ['script.py', '--lr', '1'] True\n")
    assert outcome.output.endswith('File "script.py", line 3, in <module>\nRuntimeError: at line 3\n')
    assert len(said) == 1
    assert (tmp_path / "scripts" / "script.py").read_text() == "print('old')"


@pytest.mark.parametrize("cached", [True, False])
def test_a_module_of_the_script_runs_with_another_text(run, tmp_path, cached):
    """Also where Python has compiled the module's own text before."""
    (tmp_path / "scripts" / "helper.py").write_text("VALUE = 'old'")
    if cached:
        assert run("import helper; print(helper.VALUE)")[0].output == "old\n"

    outcome, _ = run("import helper; print(helper.VALUE)", replace={"helper.py": "VALUE = 'new'"})

    assert outcome.output == "new\n"
    assert run("import helper; print(helper.VALUE)")[0].output == "old\n"


SPAWNING = """
import multiprocessing, torch

VALUE = {value!r}

def tell(queue):
    queue.put((__name__, VALUE))

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    child = context.Process(target=tell, args=(queue,))
    child.start()
    print(VALUE, *queue.get(timeout=20))
    child.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_that_it_spawns_run_the_other_text_too(run, method):
    """A spawned process runs its parent's main script again, as `__mp_main__`: the text that the parent runs."""
    outcome, said = run(
        SPAWNING.format(value="old", method=method),
        replace={"script.py": SPAWNING.format(value="new", method=method)},
    )

    name = "__main__" if method == "fork" else "__mp_main__"
    assert (outcome.returncode, outcome.output) == (0, f"new {name} new\n")
    assert len(said) >= 2 or method == "fork"


def test_a_process_that_is_given_the_script_runs_the_other_text(run):
    """As torchrun does: `python -u script.py`, with its options, arguments and environment."""
    source = """
        import os, subprocess, sys, torch
        VALUE = {value!r}
        if "RANK" in os.environ:
            print(VALUE, sys.argv[1:], sys.warnoptions, __file__)
        else:
            command = [sys.executable, "-u", "-W", "error::FutureWarning", __file__, "--lr", "1"]
            subprocess.run(command, env=dict(os.environ, RANK="0"), check=True)
    """

    outcome, _ = run(source.format(value="old"), replace={"script.py": textwrap.dedent(source.format(value="new"))})

    assert outcome.output == "new ['--lr', '1'] ['error::FutureWarning'] script.py\n"
