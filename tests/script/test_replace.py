"""A run may have another text for a file of the script's, and no file is changed."""

from __future__ import annotations

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
