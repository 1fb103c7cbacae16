"""Every stack of the table is run where its package is installed, and skipped by the name of its extra elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    full = f"mixprec_test_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def drivers() -> ModuleType:
    """The table."""
    return _load("drivers")


@pytest.fixture
def train(drivers: ModuleType, stack: str):
    """`train(first, last, state=None, **setting)` in `stack` -> Run."""
    package, driver = drivers.DRIVERS[stack]
    if package is not None:
        pytest.importorskip(package, reason=f"extra: {package}")
    return lambda first, last, state=None, **setting: driver(first, last, drivers.Setting(**setting), state)
