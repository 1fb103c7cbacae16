"""What must stay float32 is decided by the policy, then by the weights themselves, then by measuring on a sample."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from mixprec._convert._converted import Converted, dtype_named
from mixprec._convert._doors import cast
from mixprec._convert._lowering import Lowering
from mixprec._convert._parity import Parity, Reference, called, compare, floating, record, reference
from mixprec._convert._survival import survival
from mixprec._convert._units import kept_by_policy, own_tensors, tied, units
from mixprec._policy import Policy
from mixprec.errors import InvalidValueError

__all__ = ["convert"]

_TOLERANCE = 16.0


def convert(
    model: nn.Module,
    dtype: str | torch.dtype = "fp16",
    *,
    policy: Policy | str | None = None,
    sample: Any = None,
    tolerance: float | None = None,
) -> Converted:
    """A copy of `model` for inference in `"fp16"` or `"bf16"`; `model` itself is not changed.

        small = mixprec.convert(model, "fp16", sample=batch)
        print(small.parity, small.kept)
        small.save("model.safetensors")

    Weights are cast, inputs are cast at the door, results come out as float32. Three things keep a module in float32:

    - the policy: a module of torch.nn whose op it runs in float32, and modules that it names;
    - the weights: one that overflows, or of which more is lost than rounding takes;
    - the sample: values inside it that do not fit, and, while the outputs are farther from float32's than `tolerance`,
      the modules that add the largest error of their own.

    Args:
        model: with float32 parameters.
        dtype: `"fp16"` or `"bf16"`.
        policy: a `Policy`, its name or its text. None is `Policy.lean()`, under which norms stay in 16 bits: their
            kernels accumulate in float32.
        sample: what to call the model with: a tensor, a tuple of arguments, or a mapping of named ones.
        tolerance: the relative error of the outputs on the sample to reach; None is 16 spacings of the format (0.016
            in fp16, 0.125 in bf16).

    Raises: InvalidValueError for another dtype, a model without float32 parameters, a sample that it cannot take.

    **Cost**: half the memory of the model beside it. With a sample one float32 pass and two to 2 + log2(modules) low
    ones, and the results of every module in memory twice.
    """
    chosen = dtype_named(dtype)
    _check(model, tolerance, sample)
    rules = policy if isinstance(policy, Policy) else Policy.lean() if policy is None else _policy(policy)
    kept = kept_by_policy(model, rules)
    kept |= {path: why for path, why in _kept_by_weights(model, chosen).items() if path not in kept}
    lowering = Lowering(model, chosen, _with_tied(model, kept))
    if sample is None:
        return Converted(lowering, rules, None)
    limit = _TOLERANCE * torch.finfo(chosen).eps if tolerance is None else tolerance
    return Converted(lowering, rules, _fit(model, lowering, sample, limit))


def _check(model: nn.Module, tolerance: float | None, sample: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidValueError("model", type(model).__name__, "a torch.nn.Module")
    halves = [name for name, p in model.named_parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    if halves:
        advice = "What the cast lost cannot be measured any more: convert the float32 model."
        raise InvalidValueError("model", f"{halves[0]} in 16 bits", "float32 parameters", advice)
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0.0 < tolerance < math.inf):
        raise InvalidValueError("tolerance", tolerance, "a positive number")
    if tolerance is not None and sample is None:
        raise InvalidValueError("tolerance", tolerance, "None without a sample", "There is nothing to measure on.")


def _policy(policy: object) -> Policy:
    if not isinstance(policy, str):
        raise InvalidValueError("policy", policy, "a Policy, the name of one, or the text of one")
    is_text = policy.split()[:1] == ["base"] or len(policy.splitlines()) > 1
    return Policy.parse(policy) if is_text else Policy.named(policy, "cuda")


def _kept_by_weights(model: nn.Module, dtype: torch.dtype) -> dict[str, str]:
    kept = {}
    for path, module in units(model):
        found = {name: survival(tensor, dtype) for _, name, tensor in own_tensors(module, whole=True)}
        bad = next(((name, each) for name, each in found.items() if not each.survives), None)
        if bad is not None:
            kept[path] = f"{bad[0]}: {bad[1].reason}"
    return kept


def _with_tied(model: nn.Module, kept: dict[str, str]) -> dict[str, str]:
    """`kept`, and what shares a tensor with it."""
    for paths in tied(model):
        first = next((path for path in sorted(paths) if path in kept), None)
        if first is not None:
            kept = {**dict.fromkeys(paths, f"shares a tensor with {first}"), **kept}
    return kept


def _fit(model: nn.Module, lowering: Lowering, sample: Any, tolerance: float) -> Parity:
    """Keep more in float32 until the outputs are within `tolerance`; the parity that was reached."""
    largest = torch.finfo(lowering.dtype).max
    kinds = {path: type(module).__name__ for path, module in units(model)}
    low = dict(units(lowering.model))
    own_error: dict[str, float] = {}
    too_large: dict[str, tuple[float, float]] = {}

    def judge(path: str, inputs: Any, output: Any) -> None:
        before, after = _amax(inputs), _amax(output)
        if before > largest or after > largest:
            too_large[path] = (before, after)
        elif path not in lowering.kept:
            own_error[path] = max(own_error.get(path, 0.0), _own_error(low[path], inputs, output, lowering.dtype))

    full = reference(model, sample, judge)
    for path, (before, after) in too_large.items():
        for each in _group(model, path):
            lowering.keep(each, f"values up to {max(before, after):.4g} do not fit {str(lowering.dtype)[6:]}")
        if after > largest:
            lowering.widen(path)
    ranked = sorted((path for path in own_error if path not in lowering.kept), key=lambda path: own_error[path])
    parity, count = _measured(lowering, sample, full, kinds, tolerance), 1
    while not parity.within and ranked:
        for _ in range(min(count, len(ranked))):
            path = ranked.pop()
            for each in _group(model, path):
                lowering.keep(each, f"measured: in {str(lowering.dtype)[6:]} its own error is {own_error[path]:.2g}")
        parity, count = _measured(lowering, sample, full, kinds, tolerance), 2 * count
    lowering.prune()
    return parity


def _measured(lowering: Lowering, sample: Any, full: Reference, kinds: dict[str, str], tolerance: float) -> Parity:
    converted = Converted(lowering, Policy.lean(), None)
    found = record(lowering.model, lambda: called(converted, sample))
    return compare(found, full, kinds, lowering.kept, tolerance)


def _own_error(module: nn.Module, inputs: Any, output: Any, dtype: torch.dtype) -> float:
    """The error that a lowered unit makes of inputs that are right."""
    args, kwargs = cast(inputs, dtype)
    made = module(*args, **kwargs)
    error = 0.0
    for low, full in zip(floating(made), floating(output), strict=True):
        difference = torch.linalg.vector_norm((low.to(torch.float64) - full.to(torch.float64)).reshape(-1))
        norm = torch.linalg.vector_norm(full.to(torch.float64).reshape(-1))
        here = float(difference / norm.clamp_min(torch.finfo(torch.float32).tiny))
        error = max(error, here if math.isfinite(here) else math.inf)
    return error


def _group(model: nn.Module, path: str) -> set[str]:
    return {path}.union(*(paths for paths in tied(model) if path in paths))


def _amax(values: Any) -> float:
    """The largest finite magnitude: an infinity, such as a mask's, is one in 16 bits too."""
    finite = [t.abs().masked_fill(~t.isfinite(), 0.0) for t in floating(values) if t.numel()]
    return max((float(t.amax()) for t in finite), default=0.0)
