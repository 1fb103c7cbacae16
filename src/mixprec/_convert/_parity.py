"""Parity is measured on a sample, module by module, against the float32 model that was converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mixprec._convert._units import units

__all__ = [
    "ModuleParity",
    "OutputParity",
    "Parity",
    "Reference",
    "called",
    "compare",
    "floating",
    "record",
    "reference",
]


@dataclass(frozen=True)
class ModuleParity:
    """How far the results of one unit are from float32's, errors from before it included.

    `max_error` is the largest absolute difference, `relative_error` ‖here − float32‖ ÷ ‖float32‖, `amax` float32's
    largest magnitude, `nonfinite` how many results are infinite or NaN where float32's are not.
    """

    path: str
    kind: str
    dtype: str
    max_error: float
    relative_error: float
    amax: float
    nonfinite: int
    kept: str = ""


@dataclass(frozen=True)
class OutputParity:
    """The same for the model's outputs as one vector; `top1` is the share of equal argmax along the last dimension."""

    max_error: float
    relative_error: float
    nonfinite: int
    top1: float | None


@dataclass(frozen=True)
class Parity:
    """What a conversion did to the results on the sample. `tolerance` is what `output.relative_error` had to reach."""

    modules: tuple[ModuleParity, ...]
    output: OutputParity
    tolerance: float

    @property
    def within(self) -> bool:
        """Whether the outputs are finite where float32's are, and as close as was asked for."""
        return self.output.nonfinite == 0 and self.output.relative_error <= self.tolerance

    def worst(self, count: int = 5) -> tuple[ModuleParity, ...]:
        """The modules farthest from float32, worst first."""
        ranked = sorted(self.modules, key=lambda m: (m.nonfinite, m.relative_error), reverse=True)
        return tuple(ranked[:count])

    def __str__(self) -> str:
        output = self.output
        top = "" if output.top1 is None else f", top-1 agrees in {output.top1:.2%}"
        lines = [f"output: relative error {output.relative_error:.2g}, largest {output.max_error:.2g}{top}"]
        for each in self.worst():
            kept = f", float32: {each.kept}" if each.kept else ""
            lines.append(f"  {each.path or '(model)'} ({each.kind}, {each.dtype}): {each.relative_error:.2g}{kept}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Reference:
    """What float32 computed: every unit's results, in order of its calls, and the model's."""

    units: Mapping[str, list[list[Tensor]]]
    output: Any


def called(model: nn.Module, sample: Any) -> Any:
    """`model` on a sample: a tensor, a tuple of arguments, or a mapping of named ones."""
    if isinstance(sample, Mapping):
        return model(**sample)
    return model(*sample) if isinstance(sample, (tuple, list)) else model(sample)


@contextmanager
def _heard(model: nn.Module, hear: Callable[[str, nn.Module, Any, Any], None]) -> Iterator[None]:
    handles = [
        module.register_forward_hook(
            lambda module, args, kwargs, output, path=path: hear(path, module, (args, kwargs), output),
            with_kwargs=True,
        )
        for path, module in units(model)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def record(model: nn.Module, run: Callable[[], Any], also: Callable[[str, Any, Any], None] | None = None) -> Reference:
    """What every unit of `model` gives while `run()` runs; `also` is told the path, inputs and results of each call.

    **Cost**: the results of all units stay in memory.
    """
    results: dict[str, list[list[Tensor]]] = {}

    def hear(path: str, module: nn.Module, inputs: Any, output: Any) -> None:
        results.setdefault(path, []).append([t.detach() for t in floating(output)])
        if also is not None:
            also(path, inputs, output)

    with _heard(model, hear):
        return Reference(results, run())


@torch.no_grad()
def reference(model: nn.Module, sample: Any, also: Callable[[str, Any, Any], None] | None = None) -> Reference:
    """`record` of a call of `model`, in evaluation mode, which it leaves as it found it."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        return record(model, lambda: called(model, sample), also)
    finally:
        for module, was in training.items():
            module.training = was


def compare(
    low: Reference, full: Reference, kinds: Mapping[str, str], kept: Mapping[str, str], tolerance: float
) -> Parity:
    """`low` against `full`."""
    modules = []
    for path, calls in full.units.items():
        before = [t for call in calls for t in call]
        after = [t for call in low.units.get(path, []) for t in call]
        if len(before) == len(after) and before:
            errors = _errors(after, before)
            dtype = "float32" if path in kept else str(after[0].dtype).removeprefix("torch.")
            modules.append(ModuleParity(path, kinds[path], dtype, *errors, kept.get(path, "")))
    before, after = floating(full.output), floating(low.output)
    max_error, relative, _, nonfinite = _errors(after, before)
    return Parity(tuple(modules), OutputParity(max_error, relative, nonfinite, _top1(after, before)), tolerance)


def floating(values: Any) -> list[Tensor]:
    """The floating-point tensors in a nest."""
    return [t for t in pytree.tree_leaves(values) if isinstance(t, Tensor) and t.is_floating_point()]


def _errors(after: list[Tensor], before: list[Tensor]) -> tuple[float, float, float, int]:
    """Largest and relative error, float32's largest magnitude, and how many results are not finite that were."""
    if not before:
        return 0.0, 0.0, 0.0, 0
    full = torch.cat([t.reshape(-1).to(torch.float64) for t in before])
    low = torch.cat([t.reshape(-1).to(torch.float64) for t in after])
    finite = torch.isfinite(full)
    nonfinite = int((~torch.isfinite(low) & finite).sum())
    both = finite & torch.isfinite(low)
    difference = torch.where(both, low - full, 0.0)
    whole = torch.where(finite, full, 0.0)
    norm = torch.linalg.vector_norm(whole).clamp_min(torch.finfo(torch.float32).tiny)
    worst = difference.abs().amax() if difference.numel() else difference.new_zeros(())
    largest = whole.abs().amax() if whole.numel() else whole.new_zeros(())
    relative = torch.linalg.vector_norm(difference) / norm
    return float(worst), float(relative) if not nonfinite else float("inf"), float(largest), nonfinite


def _top1(after: list[Tensor], before: list[Tensor]) -> float | None:
    if not before or before[0].ndim < 2 or before[0].shape[-1] < 2:
        return None
    return float((after[0].argmax(-1) == before[0].argmax(-1)).to(torch.float64).mean())
