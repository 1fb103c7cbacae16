"""A stream is what a loss scale has to live with: how large the gradients of a real training were, step by step.

Runs the examples in float32, where nothing overflows and nothing is lost, and writes one small file per optimizer:

    python -m benchmarks.record_streams
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from benchmarks.streams import BINS, DATA, LOWEST, STRIDE
from mixprec import Precision

EXAMPLES = Path(__file__).parents[1] / "examples"
RUNS = {
    "digits_convnet": ("convnet",),
    "digits_autoencoder": ("autoencoder",),
    "char_transformer": ("transformer",),
    "gan_two_optimizers": ("gan-judge", "gan-draw"),
}
"""Example -> the names of its optimizers' streams, in the order in which they first step."""

HALF_MODULES = (nn.Linear, nn.Conv2d)
"""Whose results autocast computes in 16 bits, so that the gradients of these results are 16-bit too."""


class Recorder:
    """Collects magnitudes per optimizer: of its parameters' gradients, and of those that backward went through."""

    def __init__(self) -> None:
        self.streams: dict[int, list[dict[str, Any]]] = {}
        self._through: list[Tensor] = []

    def passed(self, module: nn.Module, args: Any, output: Any) -> None:
        """A forward hook of all modules: keeps the gradient of a 16-bit result when it comes."""
        if isinstance(module, HALF_MODULES) and output.requires_grad:
            output.register_hook(lambda gradient: self._through.append(gradient.detach()))

    def before_step(self, precision: Precision) -> None:
        steps = self.streams.setdefault(id(precision), [])
        own = [p.grad for o in precision.optimizers for g in o.param_groups for p in g["params"] if p.grad is not None]
        steps.append({"weights": _magnitudes(own), "activations": _magnitudes(self._through)})
        self._through = []

    def arrays(self, key: int) -> dict[str, np.ndarray[Any, Any]]:
        """One stream, ready to be written."""
        steps = self.streams[key]
        found: dict[str, np.ndarray[Any, Any]] = {}
        for what in ("weights", "activations"):
            found[f"{what}_amax"] = np.array([step[what][0] for step in steps], dtype=np.float32)
            found[f"{what}_counts"] = np.stack([step[what][1] for step in steps[::STRIDE]]).astype(np.uint32)
        return found


def _magnitudes(tensors: list[Tensor]) -> tuple[float, np.ndarray[Any, Any]]:
    """The largest magnitude, and how many elements have which exponent; zeros are not counted."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors]).abs()
    exponents = torch.frexp(flat[flat > 0]).exponent - 1
    counts = torch.bincount((exponents - LOWEST).clamp(0, BINS - 1).long(), minlength=BINS)
    return flat.max().item(), counts.numpy()


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Every `Precision.step` and every module in the process is seen by `recorder`."""
    step = Precision.step

    def seen(precision: Precision) -> Any:
        recorder.before_step(precision)
        return step(precision)

    handle = register_module_forward_hook(recorder.passed)
    Precision.step = seen  # type: ignore[method-assign,assignment] # there is no hook before clipping
    try:
        yield
    finally:
        Precision.step = step  # type: ignore[method-assign] # as it was
        handle.remove()


def example_main(example: str) -> Callable[[list[str]], dict[str, float]]:
    """The `main` of an example; they are scripts, so their folder has to be on the path."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(example).main  # type: ignore[no-any-return] # examples are not typed
    finally:
        sys.path.remove(str(EXAMPLES))


def record(example: str, steps: int, folder: Path) -> None:
    """Runs `example` and writes its streams."""
    main = example_main(example)
    recorder = Recorder()
    with recording(recorder), contextlib.redirect_stdout(io.StringIO()):
        main(["--mode", "fp32", "--steps", str(steps)])
    for name, key in zip(RUNS[example], recorder.streams, strict=True):
        path = folder / f"{name}.npz"
        arrays: Any = recorder.arrays(key)
        np.savez_compressed(path, **arrays)
        print(f"{path}: {len(recorder.streams[key])} steps, {path.stat().st_size / 1024:.0f} KiB")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=DATA)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # the models are small
    options.out.mkdir(parents=True, exist_ok=True)
    for example in RUNS:
        record(example, options.steps, options.out)


if __name__ == "__main__":
    main()
