"""The entry is called in every process that imports torch, before the script goes on, and in no other."""

from __future__ import annotations

import pytest

KNOWN = "entry knows torch stand-in and {'answer': 42}"


@pytest.mark.parametrize(
    "how",
    [
        "import torch",
        "from torch import nn",
        "import torch.nn",
        "import importlib; importlib.import_module('torch.nn')",
        "import ctypes; ctypes.pythonapi.PyImport_ImportModule.restype = ctypes.py_object; "
        "ctypes.pythonapi.PyImport_ImportModule(b'torch')",
    ],
)
def test_the_entry_runs_before_the_next_statement(run, how):
    """However torch is imported, also by C code, the entry has spoken before the script's next statement."""
    outcome, said = run(
        f"""
        {how}
        import os, pathlib
        print(*pathlib.Path(os.environ["MIXPREC_SCRIPT"]).glob("*.jsonl"), sep="\\n")
        """
    )

    assert outcome.returncode == 0
    assert len(outcome.output.splitlines()) == 1
    assert list(said.values()) == [[KNOWN, "exit"]]


def test_without_torch_nothing_happens(run):
    """A script that never imports torch runs with no entry and no trace of ours but the environment."""
    outcome, said = run(
        "import sys; print([m for m in sys.modules if 'mixprec' in m], [p for p in sys.path if 'startup' in p])"
    )

    assert outcome.output == "[] []\n"
    assert said == {}


def test_looking_for_torch_is_not_importing_it(run):
    """`importlib.util.find_spec("torch")` finds it and calls nothing; a later import still does."""
    outcome, said = run(
        """
        import importlib.util, sys
        assert importlib.util.find_spec("torch") and "torch" not in sys.modules
        assert importlib.util.find_spec("torch") and "mixprec" not in sys.modules
        import torch
        """
    )

    assert outcome.returncode == 0, outcome.output
    assert list(said.values()) == [[KNOWN, "exit"]]


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_every_start_method_are_heard(run, method):
    """A multiprocessing child that uses torch has a record of its own that is closed at its exit."""
    outcome, said = run(
        f"""
        import multiprocessing
        import torch

        def work():
            import torch, the_entry
            the_entry.say("work") if "{method}" == "fork" else None

        if __name__ == "__main__":
            child = multiprocessing.get_context("{method}").Process(target=work)
            child.start()
            child.join()
            raise SystemExit(child.exitcode)
        """
    )

    assert outcome.returncode == 0, outcome.output
    assert len(said) >= 2
    assert all(lines[-1] == "exit" for lines in said.values())


def test_ranks_have_records_under_their_rank(run):
    """A process with RANK in its environment writes to `rank1-pid…`, one without to `main-pid…`."""
    _, said = run(
        """
        import os, subprocess, sys
        import torch
        subprocess.run([sys.executable, "-c", "import torch"], env={**os.environ, "RANK": "1"}, check=True)
        """
    )

    assert sorted(name.partition("-")[0] for name in said) == ["main", "rank1"]


def test_a_shadowed_sitecustomize_still_runs(run, tmp_path):
    """A `sitecustomize` further down the path, which ours hides, is run as well."""
    (tmp_path / "scripts" / "sitecustomize.py").write_text("import builtins; builtins.SHADOWED = 'ran'")

    outcome, _ = run("print(SHADOWED, __import__('sitecustomize').__file__.split('/')[-2])")

    assert outcome.output == "ran scripts\n"


def test_an_entry_that_fails_does_not_disturb_the_script(run):
    """The script goes on and exits as it would; the traceback of the entry is in the outcome."""
    outcome, _ = run("import torch; print('on'); raise SystemExit(5)", entry="the_entry:fails")

    assert (outcome.returncode, outcome.output) == (5, "on\n")
    assert "this entry fails" in outcome.errors[0]


def test_the_script_sees_itself_unchanged(run):
    """`__name__`, argv, the first entry of the path and the exit code are what `python script.py --lr 1` gives."""
    outcome, _ = run("import sys; print(__name__, sys.argv, sys.path[0]); sys.exit(7)", "--lr", "1", "--help")

    assert outcome.returncode == 7
    assert outcome.output.startswith("__main__ ['script.py', '--lr', '1', '--help']")
    assert outcome.output.rstrip().endswith("scripts")


def test_a_module_runs_as_with_dash_m(run):
    """`module=True` is `python -m script`."""
    outcome, said = run("import torch, sys; print(__name__, __spec__.name, sys.argv[1:])", "--lr", module=True)

    assert outcome.output == "__main__ script ['--lr']\n"
    assert list(said.values()) == [[KNOWN, "exit"]]
