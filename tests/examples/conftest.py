"""Examples are loaded from their files and run in this process, each run once for all tests."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mixprec import GradScaler, Precision

EXAMPLES = Path(__file__).parents[2] / "examples"


@functools.cache
def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def _unscaled(mode: str, *optimizers: torch.optim.Optimizer, **options: object) -> Precision:
    """fp16-mixed with a loss scale that stays 1, which is what fp16 autocast without a scaler does."""
    scaler = GradScaler("cpu", init_scale=1.0, min_scale=1.0, max_scale=1.0)
    return Precision("fp16-mixed", *optimizers, scaler=scaler, **options)  # type: ignore[arg-type]  # passed through


@functools.cache
def _result(name: str, mode: str, seed: int) -> dict[str, float]:
    module = _module(name)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        if mode == "fp16-unscaled":
            patch.setattr(module, "Precision", _unscaled)
        taken = "fp16-mixed" if mode == "fp16-unscaled" else mode
        result: dict[str, float] = module.main(["--mode", taken, "--seed", str(seed)])
    assert len(printed.getvalue().splitlines()) == 2, "an example says why it chose a mode, and how it ended"
    return result


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices on one thread: the same sums in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    """The module of an example by name."""
    return _module


@pytest.fixture(scope="session")
def result() -> Callable[[str, str, int], dict[str, float]]:
    """What an example's main returned for a mode and seed; "fp16-unscaled" is fp16 without a loss scale."""
    return _result
