"""`mixprec migrate` shows a diff and changes nothing, or with --write changes the files and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst", reason="extra: migrate")

OLD = "from torch.cuda.amp import autocast\nwith autocast(): pass\n"
NEW = 'from torch.amp import autocast\nwith autocast("cuda"): pass\n'


@pytest.fixture
def folder(tmp_path):
    """A script to move, one that is not understood, and one that has nothing to do with it."""
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "odd.py").write_text("from torch.cuda.amp import autocast\nf(autocast)\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "other.py").write_text("print(1)\n")
    return tmp_path


def test_it_shows_a_diff_and_changes_nothing(mixprec, folder):
    """The diff is a unified one, the refusal has file and line, the exit code says that there is something to do."""
    result = mixprec("migrate", str(folder))
    assert result.code == 1
    assert '+with autocast("cuda"): pass\n3 files' in result.out
    assert f"{folder / 'odd.py'}:2: left as it is: autocast:" in result.out
    assert "3 files read, 1 to change; --write changes them; 1 places not understood." in result.out
    assert (folder / "train.py").read_text() == OLD


def test_write_changes_the_files(mixprec, folder):
    """After --write there is nothing left to do in that file, and line ends are kept."""
    (folder / "train.py").write_bytes(OLD.replace("\n", "\r\n").encode())
    assert mixprec("migrate", "--write", str(folder / "train.py")).code == 0
    assert (folder / "train.py").read_bytes() == NEW.replace("\n", "\r\n").encode()
    assert mixprec("migrate", str(folder / "train.py")).code == 0


def test_json_holds_the_same(mixprec, folder):
    """One entry per file with something to say: its diff, its refusals with their lines."""
    document = mixprec("migrate", str(folder), "--format", "json").json
    assert document["schema"] == 1
    odd, train = document["files"]
    assert odd["refusals"][0]["line"] == 2
    assert train["changed"]
    assert '+with autocast("cuda"): pass' in train["diff"]


def test_a_file_that_does_not_parse_could_not_run(mixprec, tmp_path):
    """Exit code 2 and the name of the file."""
    (tmp_path / "broken.py").write_text("from torch.cuda.amp import autocast\nwith autocast() print\n")
    result = mixprec("migrate", str(tmp_path))
    assert result.code == 2
    assert "broken.py" in result.err
