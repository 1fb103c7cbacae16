"""`mixprec lint` as it is used: what it prints, what it writes, and what its exit code says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mixprec.cli import main

DEEPSPEED = '{\n  "train_batch_size": 1,\n  "fp16": {"enabled": true},\n  "bf16": {"enabled": true}\n}\n'
IDLE = "x = 1  # mixprec: ignore[MP002] no reason\ny = 2\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder whose configuration asks for everything."""
    (tmp_path / "pyproject.toml").write_text("[tool.mixprec.lint]\nlevel = 'info'\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _lint(*arguments: str, stdin: bytes = b"") -> Result:
    result = CliRunner().invoke(main, ["lint", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def _json(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(_lint("--format", "json", *arguments).output))


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_clean_folder_is_one_quiet_line(folder: Path) -> None:
    """Nothing found: one line, exit code 0."""
    _write(folder, a__py="import torch\n")
    result = _lint(".")
    assert (result.exit_code, result.output) == (0, "1 file: nothing found.\n")


def test_a_finding_shows_place_line_reason_and_fix(folder: Path) -> None:
    """The text has the place that editors jump to, the source with carets, why it matters, and what to do."""
    _write(folder, ds__json=DEEPSPEED)
    result = _lint("ds.json")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("ds.json:4:23: error MP210 two-places-decide-precision: fp16 and bf16 are enabled")
    assert lines[1] == '    4 |   "bf16": {"enabled": true}'
    assert lines[2].replace(" ", "") == "|^^^^"
    assert lines[2].index("^") == lines[1].index("true")
    assert lines[3].startswith("  why: ")
    assert lines[4].startswith("  fix: ")
    assert lines[-1] == "1 file: 1 error."


def test_the_reason_is_given_once_per_code(folder: Path) -> None:
    """Two findings of one code explain it once."""
    _write(folder, a__json=DEEPSPEED, b__json=DEEPSPEED)
    output = _lint(".").output
    assert output.count("  why: ") == 1
    assert output.count("  fix: ") == 2


def test_the_json_document_is_stable(folder: Path) -> None:
    """JSON is one object with schema, findings and summary, and counts of everything else."""
    _write(folder, ds__json=DEEPSPEED, a__py=IDLE)
    document = _json(".")
    assert list(document)[:3] == ["schema", "findings", "summary"]
    assert document["schema"] == 1
    assert [finding["code"] for finding in document["findings"]] == ["MP290", "MP210"]
    assert document["findings"][1]["location"]["file"] == "ds.json"
    assert document["summary"]["by_code"] == {"MP210": 1, "MP290": 1}
    assert {key: document[key] for key in ("files", "fixed", "below", "silenced", "known", "gone")} == {
        "files": 2,
        "fixed": [],
        "below": 0,
        "silenced": 0,
        "known": 0,
        "gone": 0,
    }


def test_sarif_and_annotations_tell_the_same_findings(folder: Path) -> None:
    """Every format renders the same findings."""
    _write(folder, ds__json=DEEPSPEED, a__py=IDLE)
    log = json.loads(_lint("--format", "sarif", ".").output)
    results = log["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == ["MP290", "MP210"]
    assert all(len(result["partialFingerprints"]["mixprec/v1"]) == 32 for result in results)
    annotations = _lint("--format", "github", ".").output.splitlines()
    assert [line.split(" ")[0] for line in annotations] == ["::notice", "::error"]
    _write(folder, ds__json="{}", a__py="")
    assert _lint("--format", "github", ".").output == ""


def test_statistics_count_codes(folder: Path) -> None:
    """Statistics have one row per code with the number of findings and of fixes."""
    _write(folder, a__json=DEEPSPEED, b__json=DEEPSPEED, c__py=IDLE)
    lines = _lint("--statistics", ".").output.splitlines()
    rows = [line.split() for line in lines if line.startswith("MP")]
    assert rows == [
        ["MP210", "two-places-decide-precision", "error", "2"],
        ["MP290", "unused-ignore", "info", "1", "1"],
    ]
    assert lines[-1].startswith("3 files: 2 errors, 1 note.")


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ((), {"MP210", "MP290"}),
        (("--select", "MP210"), {"MP210"}),
        (("--select", "two-places-decide-precision,MP002,MP29"), {"MP210", "MP290"}),
        (("--ignore", "MP210"), {"MP290"}),
        (("--ignore", "MP210", "--ignore", "unused-ignore"), set()),
        (("--select", "MP0"), set()),
        (("--exclude", "*.py"), {"MP210"}),
    ],
)
def test_codes_and_files_are_chosen(folder: Path, arguments: tuple[str, ...], codes: set[str]) -> None:
    """--select, --ignore and --exclude choose what is looked for and where."""
    _write(folder, ds__json=DEEPSPEED, a__py=IDLE)
    assert {finding["code"] for finding in _json(*arguments, ".")["findings"]} == codes


def test_configuration_counts_and_the_command_line_comes_on_top(folder: Path) -> None:
    """Options of pyproject.toml hold; --select replaces, --ignore adds, --no-config forgets them."""
    table = "[tool.mixprec.lint]\nignore = ['MP210']\nper-file-ignores = {'a.py' = ['MP290']}\nlevel = 'info'\n"
    _write(folder, ds__json=DEEPSPEED, a__py=IDLE, b__py=IDLE, pyproject__toml=table)
    assert [finding["location"]["file"] for finding in _json(".")["findings"]] == ["b.py"]
    assert len(_json("--no-config", "--level", "info", ".")["findings"]) == 3


def test_info_is_reported_when_it_is_asked_for(folder: Path) -> None:
    """By default warnings and errors are reported and count; info is when the level says so or its code is named."""
    _write(folder, ds__json=DEEPSPEED, a__py=IDLE, pyproject__toml="[tool.mixprec.lint]\n")
    result = _lint("a.py")
    assert result.exit_code == 0
    assert result.output == "1 file: nothing found. 1 below the level; --level info reports everything.\n"
    assert _json("a.py")["below"] == 1
    assert _lint("--fix", "a.py").exit_code == 0
    assert (folder / "a.py").read_text() == IDLE, "what is not reported is not fixed"
    assert _lint("--level", "info", "a.py").exit_code == 1
    assert _lint("--select", "ALL,MP290", "a.py").exit_code == 1
    assert _lint("--select", "MP002,MP29", "a.py").exit_code == 1
    assert _lint("--select", "MP002,MP29", "--level", "warning", "a.py").exit_code == 0
    assert _lint("ds.json").exit_code == 1
    assert _lint("--level", "error", "ds.json").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.py",), "missing.py"),
        (("--select", "MP9"), "MP9"),
        (("--ignore", "clip-before-unscal"), "clip-before-unscale"),
        (("--baseline", "missing.json"), "missing.json"),
        (("--format", "xml"), "xml"),
        (("--unsafe-fixes",), "--fix"),
        (("--explain", "MP999"), "MP999"),
        (("-", "."), "stands alone"),
        (("--fix", "-"), "stands alone"),
    ],
)
def test_what_cannot_run_exits_with_2(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    """A wrong option or path ends the run with one message and exit code 2."""
    result = _lint(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_wrong_configuration_exits_with_2(folder: Path) -> None:
    """A key that is not known stops the run, with the closest known one."""
    _write(folder, pyproject__toml="[tool.mixprec.lint]\nignor = []\n")
    result = _lint(".")
    assert result.exit_code == 2
    assert "'ignore'" in result.output


BROKEN = "import torch\nwith torch.autocast('cuda':\n  pass  # GradScaler, TrainingArguments\n"


def test_a_file_that_cannot_be_read_is_a_finding_and_the_rest_is_linted(folder: Path) -> None:
    """Broken files are told with their place; exit code 2 only where not one file could be read."""
    _write(folder, bad__py=BROKEN, ok__py=IDLE, n__ipynb="{ autocast")
    (folder / "wide.py").write_bytes("autocast".encode("utf-16"))
    document = _json(".")
    found = {finding["location"]["file"]: finding["code"] for finding in document["findings"]}
    assert found == {"bad.py": "MP298", "n.ipynb": "MP298", "ok.py": "MP290", "wide.py": "MP298"}
    assert _lint(".").exit_code == 1
    assert _lint("bad.py").exit_code == 2
    assert "bad.py:2:" in _lint("bad.py").output


def test_what_python_thinks_of_the_source_is_not_printed(folder: Path) -> None:
    """A source that makes the compiler warn is linted without a word about that."""
    _write(folder, a__py="import torch.amp, TrainingArguments\nx = '\\d'\ny = 1is 2\n")
    command = [sys.executable, "-W", "always", "-m", "mixprec", "lint", "a.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 file: nothing found.\n", "")


def test_empty_files_and_folders_are_clean(folder: Path) -> None:
    """Nothing to lint is nothing found."""
    assert _lint(".").output == "0 files: nothing found.\n"
    _write(folder, a__py="", b__ipynb='{"cells": []}', c__json="")
    assert _lint("a.py", "b.ipynb", "c.json").exit_code == 0


def test_a_huge_file_is_not_read(folder: Path) -> None:
    """A file of many megabytes is data; it is told, and the others are linted."""
    _write(folder, big__py="x = 'autocast'\n" * 400_000, a__py="x = 1\n")
    (finding,) = _json(".")["findings"]
    assert (finding["code"], finding["severity"]) == ("MP298", "info")


def test_fix_writes_safe_fixes_and_reports_what_is_left(folder: Path) -> None:
    """--fix changes the file, says how many it fixed, and a second run changes nothing."""
    _write(folder, a__py=IDLE, ds__json=DEEPSPEED)
    (folder / "a.py").chmod(0o755)
    result = _lint("--fix", ".")
    assert (folder / "a.py").read_text() == "x = 1\ny = 2\n"
    assert (folder / "a.py").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in folder.iterdir()) == ["a.py", "ds.json", "pyproject.toml"]
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == "2 files: 1 error. 1 fixed."
    assert _lint("--fix", "a.py").output == "1 file: nothing found.\n"


def test_a_notebook_is_fixed_in_its_cell(folder: Path) -> None:
    """A fix goes into the right cell, and every other byte of the notebook stays."""
    cells = [{"cell_type": "code", "source": ["%time\n", "a = 1"]}, {"cell_type": "code", "source": [IDLE]}]
    before = json.dumps({"cells": cells, "metadata": {"x": "é"}}, indent=1)
    _write(folder, n__ipynb=before)
    assert _lint("n.ipynb").output.startswith("n.ipynb:cell 2:1:8: info MP290")
    _lint("--fix", "n.ipynb")
    assert (folder / "n.ipynb").read_text() == before.replace("  # mixprec: ignore[MP002] no reason", "").replace(
        json.dumps("x = 1\ny = 2\n"), '"x = 1\\n",\n    "y = 2\\n"'
    )


def test_diff_shows_every_fix_and_changes_nothing(folder: Path) -> None:
    """The diff is one that `patch` takes, and it turns the file into the fixed one."""
    _write(folder, a__py=IDLE.rstrip("\n"))
    result = _lint("--diff", "a.py")
    assert (folder / "a.py").read_text() == IDLE.rstrip("\n")
    assert result.exit_code == 1
    assert result.output.startswith("# a.py:1:8: MP290 (safe): Remove the comment.\n--- a/a.py\n+++ b/a.py\n")
    subprocess.run(["git", "apply"], input=result.output.encode(), check=True, cwd=folder)
    assert (folder / "a.py").read_text() == "x = 1\ny = 2"


def test_a_baseline_hides_what_is_known(folder: Path) -> None:
    """After --write-baseline the run is clean; moved lines stay known, new findings show, gone ones are counted."""
    _write(folder, a__py=IDLE, pyproject__toml="[tool.mixprec.lint]\nbaseline = 'known.json'\nlevel = 'info'\n")
    assert _lint(".").exit_code == 2, "a baseline that is asked for must be there"
    assert _lint("--write-baseline", ".").exit_code == 0
    _write(folder, a__py="import torch\n\n" + IDLE)
    assert _lint(".").output == "1 file: nothing found. 1 known from the baseline.\n"
    _write(folder, b__py=IDLE)
    assert [finding["location"]["file"] for finding in _json(".")["findings"]] == ["b.py"]
    _write(folder, a__py="x = 1\n", b__py="")
    assert _lint(".").output == ("2 files: nothing found. 1 of the baseline are gone; --write-baseline drops them.\n")


def test_standard_input_is_linted_under_its_name(folder: Path) -> None:
    """PATH - reads one file; its name decides what it is."""
    assert "stdin.py:1:8: info MP290" in _lint("-", stdin=IDLE.encode()).output
    result = _lint("-", "--stdin-filename", "conf/ds.json", stdin=DEEPSPEED.encode())
    assert result.output.startswith("conf/ds.json:4:23: error MP210")


def test_many_files_in_several_processes_give_what_one_gives(folder: Path) -> None:
    """Order and findings do not depend on the number of processes."""
    for number in range(60):
        (folder / f"f{number:02}.py").write_text(IDLE if number % 2 else "import torch.amp\n")
    one, two = _json("--jobs", "1", "."), _json("--jobs", "2", ".")
    assert one == two
    assert len(one["findings"]) == 30


def test_explain_tells_about_a_code() -> None:
    """--explain prints the cause and stops."""
    result = _lint("--explain", "clip-before-unscale")
    assert result.exit_code == 0
    assert result.output.startswith("MP002 clip-before-unscale")


def test_lint_loads_no_torch(tmp_path: Path) -> None:
    """A whole run imports neither torch nor what is linted; the same check sees a planted import."""
    script = tmp_path / "a.py"
    script.write_text("raise SystemExit(7)  # autocast\n")
    program = (
        "import sys; {planted}from mixprec.cli import main; "
        "main(['lint', sys.argv[1]], standalone_mode=False); sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    for planted, expected in (("", 0), ("import torch; ", 3)):
        done = subprocess.run([sys.executable, "-c", program.format(planted=planted), str(script)], check=False)
        assert done.returncode == expected


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("x = 'an example of a sample on behalf of a clamp'(", False),
        ("use_amp(", True),
        ("torch.cuda.amp(", True),
        ("AMP = amp2(", True),
        ("model.half(", True),
        ("half_precision(", True),
        ("loss_scalers(", True),
        ("import fp16_utils(", True),
    ],
)
def test_files_that_do_not_speak_of_precision_are_not_parsed(folder: Path, text: str, read: bool) -> None:
    """A broken file is a finding only where a word in it concerns us; `example` does not hold `amp`."""
    _write(folder, a__py=f"# TrainingArguments\n{text}" if read else text)
    assert bool(_json("a.py")["findings"]) == read
