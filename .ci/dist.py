"""Build wheel and sdist, and prove them: complete, the same from the sdist, and working in an empty environment.

Run: python .ci/dist.py [FOLDER]; `dist` by default. Needs no network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WANTED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "mkdocs.yml", "docs/README.md", "tests/conftest.py")
UNWANTED = ("__pycache__", ".venv", ".git/", "build/")
LINTED = """
import sys
from mixprec.lint import lint_source
found = lint_source(open(sys.argv[1]).read(), "train.py")
assert "MP002" in {finding.code for finding in found}, found
assert "torch" not in sys.modules
"""


def build(kind: str, source: Path, target: Path) -> Path:
    """The file that hatchling builds from a source tree: `kind` is wheel or sdist."""
    code = f"from hatchling.build import build_{kind} as b; print(b({str(target)!r}))"
    return target / said([sys.executable, "-c", code], source).splitlines()[-1]


def said(command: list[object], folder: Path) -> str:
    """Standard output of a command that must succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=folder, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def content(wheel: Path) -> dict[str, int]:
    """Checksums of what a wheel installs."""
    inside = zipfile.ZipFile(wheel).infolist()
    return {item.filename: item.CRC for item in inside if ".dist-info/" not in item.filename}


def faults(wheel: Path, sdist: Path, again: Path) -> list[str]:
    """What is wrong with the files: missing or unwanted members, or a wheel that differs when built from the sdist."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return [
        *(f"the sdist lacks {name}" for name in WANTED if name not in names),
        *(f"the sdist holds {name}" for name in names if any(mark in f"{name}/" for mark in UNWANTED)),
        *(["the wheel built from the sdist differs"] if content(wheel) != content(again) else []),
    ]


def main(folder: Path) -> int:
    """Build, check, install, use."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("mixprec-*.whl"), *folder.glob("mixprec-*.tar.gz")]:
        old.unlink()
    wheel, sdist = build("wheel", ROOT, folder), build("sdist", ROOT, folder)
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        unpacked = Path(place) / sdist.name.removesuffix(".tar.gz")
        wrong = faults(wheel, sdist, build("wheel", unpacked, Path(place)))
        empty = Path(place) / "empty"
        venv.create(empty, with_pip=True)
        python = empty / ("Scripts" if os.name == "nt" else "bin") / "python"
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
        said([python, *install, wheel], Path(place))
        said([python, "-c", LINTED, unpacked / "docs" / "train_wrong.py"], Path(place))
    for line in wrong:
        print(line, file=sys.stderr)
    for made in (wheel, sdist):
        print(f"{made}  {made.stat().st_size / 1024:.0f} KiB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "dist"))
