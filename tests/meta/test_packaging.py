"""What is built from the tree is complete, typed, and runs from an empty folder."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mixprec

ROOT = Path(__file__).parents[2]


def run(*command: object, **environment: str) -> str:
    """Standard output of a Python command that must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the tree as it is, without a network."""
    target = tmp_path_factory.mktemp("wheel")
    script = (
        f"import os; os.chdir({str(ROOT)!r}); from hatchling.build import build_wheel as b; print(b({str(target)!r}))"
    )
    return target / run("-c", script).strip().splitlines()[-1]


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    """Every file under src/mixprec is in the wheel, py.typed among them, and no test or example is."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tree = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "mixprec").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert "mixprec/py.typed" in inside
    assert inside == tree


def test_the_metadata_says_what_is_true(wheel):
    """Name, version, supported Pythons, licence and the command are in the wheel's metadata."""
    archive = zipfile.ZipFile(wheel)
    folder = f"mixprec-{mixprec.__version__}.dist-info"
    metadata = archive.read(f"{folder}/METADATA").decode()

    assert f"Version: {mixprec.__version__}" in metadata
    assert "Requires-Python: >=3.10" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert "mixprec = mixprec.cli:main" in archive.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in archive.namelist()


def test_the_installed_version_is_the_sources_version():
    """`importlib.metadata` and `mixprec.__version__` agree."""
    assert importlib.metadata.version("mixprec") == mixprec.__version__


def development_requirements(python: str) -> list[Requirement]:
    """What `pip install -e .[dev]` asks for by name on that Python, the extras that `dev` pulls in included."""
    extras = ("dev", "report", "examples", "lsp", "kernels", "docs", "tensorboard", "wandb", "migrate", "convert")
    given, seen = [{"extra": extra, "python_version": python} for extra in extras], []
    for text in importlib.metadata.requires("mixprec") or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if requirement.name != "mixprec" and (marker is None or any(map(marker.evaluate, given))):
            seen.append(requirement)
    return seen


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_direct_dependency_is_constrained_once_on_each_python(python):
    """constraints.txt fixes one version, which the requirement accepts, of each direct dependency on each Python."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = [Requirement(line) for line in lines if line and not line.startswith("#")]
    applied = [c for c in constraints if c.marker is None or c.marker.evaluate({"python_version": python})]
    names = [canonicalize_name(c.name) for c in applied]

    assert [name for name in set(names) if names.count(name) > 1] == []
    fixed = {name: str(c.specifier).removeprefix("==") for name, c in zip(names, applied, strict=True)}
    for requirement in development_requirements(python):
        assert requirement.specifier.contains(fixed[canonicalize_name(requirement.name)]), requirement


def test_it_runs_from_an_empty_folder(wheel, tmp_path):
    """Installed alone into an empty folder, `python -m mixprec --version` runs from there."""
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path, wheel)

    home = run("-c", "import mixprec; print(mixprec.__file__)", PYTHONPATH=str(tmp_path))
    version = run("-m", "mixprec", "--version", PYTHONPATH=str(tmp_path))

    assert home.strip() == str(tmp_path / "mixprec" / "__init__.py")
    assert version.strip() == f"mixprec {mixprec.__version__}"
