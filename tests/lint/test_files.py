"""The right files are found, and their bytes become the text that Python would read."""

from __future__ import annotations

import codecs
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.lint._decode import UnreadableError, decode
from mixprec.lint._files import Discovery, discover
from mixprec.lint._gitignore import Patterns
from mixprec.lint._lines import Lines


def _tree(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("autocast fp16\n")


def _found(root: Path, **how: object) -> list[str]:
    files = discover([root], Discovery(root, **how))  # type: ignore[arg-type]
    return [file.relative_to(root).as_posix() for file in files]


def test_scripts_notebooks_and_configuration_are_found(tmp_path: Path) -> None:
    """In a folder, scripts, notebooks and configuration that speaks of precision are found, by name."""
    _tree(tmp_path, "b.py", "a/c.ipynb", "ds.json", "acc.yaml", "readme.md", "x.txt", "weights.bin")
    (tmp_path / "data.json").write_text('{"points": []}')
    assert _found(tmp_path) == ["a/c.ipynb", "acc.yaml", "b.py", "ds.json"]


def test_environments_caches_and_build_products_are_left_out(tmp_path: Path) -> None:
    """A virtual environment under any name, caches and build products are not entered."""
    _tree(tmp_path, "train.py", "my-env/lib/x.py", ".venv/y.py", "build/z.py", "src/__pycache__/q.py", "conda/w.py")
    (tmp_path / "my-env" / "pyvenv.cfg").write_text("home = /usr\n")
    (tmp_path / "conda" / "conda-meta").mkdir()
    assert _found(tmp_path) == ["train.py"]


def test_a_named_file_is_taken_whatever_it_is(tmp_path: Path) -> None:
    """A file that is named is linted even where a search would leave it out, and only once."""
    _tree(tmp_path, ".venv/y.py", "script")
    files = [tmp_path / ".venv" / "y.py", tmp_path / "script", tmp_path / "script"]
    assert discover(files, Discovery(tmp_path, exclude=("script",))) == tuple(files[:2])


def test_gitignore_and_exclude_are_obeyed(tmp_path: Path) -> None:
    """`.gitignore` counts in its folder and below, an inner one overrides an outer one, `exclude` is from the root."""
    _tree(tmp_path, "a.py", "gen/x.py", "gen/keep.py", "old/b.py", "sub/old/c.py", "third_party/d.py")
    (tmp_path / ".gitignore").write_text("gen/*\nold/\n")
    (tmp_path / "gen" / ".gitignore").write_text("!keep.py\n")
    assert _found(tmp_path, exclude=("/third_party/",)) == ["a.py", "gen/keep.py"]
    everything = ["a.py", "gen/keep.py", "gen/x.py", "old/b.py", "sub/old/c.py", "third_party/d.py"]
    assert _found(tmp_path, gitignore=False) == everything


def test_gitignore_above_the_folder_counts_up_to_the_repository(tmp_path: Path) -> None:
    """Linting a subfolder obeys the repository's own file, and not one outside the repository."""
    (tmp_path / ".gitignore").write_text("*.py\n")
    repository = tmp_path / "repo"
    _tree(repository, "pkg/a.py", "pkg/b_generated.py")
    (repository / ".git").mkdir()
    (repository / ".gitignore").write_text("*_generated.py\n")
    assert [file.name for file in discover([repository / "pkg"], Discovery(repository))] == ["a.py"]


PATTERNS = [
    "*.py",
    "!keep.py",
    "/top.py",
    "build/",
    "a/b",
    "**/deep",
    "a/**",
    "a/**/z.py",
    "x?.py",
    "[ab].py",
    "[!ab].py",
    "#comment",
    r"\#real.py",
    "  ",
    "dir/*.py",
    "*",
]
PATHS = ["keep.py", "top.py", "a.py", "c.py", "x1.py", "#real.py", "a/b/z.py", "a/z.py", "dir/q.py", "s/dir/q.py"]
PATHS += ["build/o.py", "s/build/o.py", "s/top.py", "s/deep/m.py", "a/b/c/z.py"]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(chosen=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4))
def test_patterns_agree_with_git(chosen: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Which files are left out is what `git check-ignore` says."""
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    _tree(root, *PATHS)
    (root / ".gitignore").write_text("\n".join(chosen) + "\n")
    asked = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "--stdin"], input="\n".join(PATHS), capture_output=True, text=True
    )
    assert asked.returncode in (0, 1), asked.stderr
    ignored = set(asked.stdout.splitlines())
    found = set(_found(root)) | {path for path in PATHS if "build" in path.split("/")}
    mine = {path for path in PATHS if Patterns.parse(chosen).covers(path)}
    assert mine == ignored
    assert found >= set(PATHS) - ignored


@pytest.mark.parametrize(
    ("data", "text", "encoding", "bom"),
    [
        (b"x = 1\n", "x = 1\n", "utf-8", False),
        (codecs.BOM_UTF8 + "é".encode(), "é", "utf-8", True),
        ("# -*- coding: latin-1 -*-\n'é'".encode("latin-1"), "# -*- coding: latin-1 -*-\n'é'", "iso-8859-1", False),
        (
            "#!/bin/python\n# coding=cp1251\n'ж'".encode("cp1251"),
            "#!/bin/python\n# coding=cp1251\n'ж'",
            "cp1251",
            False,
        ),
        ("'é'".encode("latin-1"), "'é'", "latin-1", False),
        (b"", "", "utf-8", False),
        (b"a\r\nb\rc\n", "a\r\nb\rc\n", "utf-8", False),
    ],
)
def test_bytes_become_text_and_the_same_bytes_again(data: bytes, text: str, encoding: str, bom: bool) -> None:
    """The declared or the only possible encoding is used, line ends are kept, and encoding gives the bytes back."""
    decoded = decode(data)
    assert (decoded.text, decoded.encoding, decoded.bom) == (text, encoding, bom)
    assert decoded.encode(decoded.text) == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("x".encode("utf-16"), "UTF-16"),
        (b"x = 1\n\0", "null bytes"),
        (b"# coding: klingon\nx", "coding line"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\nx", "coding line"),
        (b"# coding: utf-8\n'\xe9'", "do not fit"),
        (codecs.BOM_UTF8 + b"\n\n'\xe9'", "do not fit"),
    ],
)
def test_what_is_no_source_text_is_refused_in_words(data: bytes, words: str) -> None:
    """Bytes that Python could not read either are refused with the reason."""
    with pytest.raises(UnreadableError, match=words):
        decode(data)


def test_a_character_outside_the_encoding_is_refused() -> None:
    """A fix whose text the file's encoding cannot hold is refused rather than written wrongly."""
    decoded = decode(b"# coding: ascii\n")
    with pytest.raises(UnreadableError, match="ascii"):
        decoded.encode("ж")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="ab\n\r\f\x0b\u2028\x1c é", max_size=30))
def test_lines_are_those_of_the_tokenizer(text: str) -> None:
    """Joining the lines with universal line ends gives the text with universal line ends; places are consistent."""
    lines = Lines(text)
    rows = [lines.line(number) for number in range(1, len(lines) + 1)]
    assert "\n".join(rows) == text.replace("\r\n", "\n").replace("\r", "\n")
    for offset in range(len(text) + 1):
        assert lines.offset(*lines.place(offset)) == offset
