"""A step's state is put back exactly: weights and buffers by name, optimizer, scaler and random states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec.errors import CheckpointError
from mixprec.monitor.incident import Incident, checksum

__all__ = ["place_state", "place_weights", "transplant"]

_WRAPPERS = ("module.", "_orig_mod.")


def place_state(
    incident: Incident,
    roots: Sequence[nn.Module],
    optimizers: Sequence[Optimizer],
    scaler: Any,
    scale: float | None = None,
) -> None:
    """Puts weights, buffers, optimizer and scaler (at another `scale` if one is given) as the step began with them.

    Raises: CheckpointError where names or shapes are not those of the incident, or weights were not saved and the
    check sums of those in place differ.
    """
    for number, root in enumerate(roots[: len(incident.facts["roots"])]):
        place_weights(incident, number, root)
    for optimizer, state in zip(optimizers, incident.optimizers(), strict=False):
        optimizer.load_state_dict(state)
    scaling = incident.scaler()
    if scaler is not None and scaling:
        scaler.load_state_dict(scaling if scale is None else {**scaling, "scale": scale})


@torch.no_grad()
def place_weights(incident: Incident, number: int, root: nn.Module) -> None:
    """Copies the saved parameters and buffers of one root into `root`; see `place_state` for what it raises."""
    own = {_bare(name): tensor for name, tensor in _named(root)}
    saved = incident.weights(number)
    for name, tensor in saved.items():
        target = own.get(_bare(name))
        if target is None or target.shape != tensor.shape:
            found = "is not there" if target is None else f"has shape {tuple(target.shape)}"
            raise CheckpointError(
                name, f"{name} was saved with shape {tuple(tensor.shape)} and {found} in this {type(root).__name__}."
            )
        target.copy_(tensor)
    for name, sum_ in incident.facts["roots"][number].get("checksums", {}).items():
        target = own.get(_bare(name))
        if name not in saved and (target is None or checksum(target) != sum_):
            raise CheckpointError(
                name,
                f"{name} is not what it was: the incident holds check sums only. "
                f"Load the weights of that step first (checkpoint: {incident.facts['checkpoint'] or 'unknown'}).",
            )


def transplant(into: Any, saved: Any) -> list[str]:
    """Makes every tensor in `into` hold what the one at its place in `saved` does; says what differed.

    Plain values are replaced where they stand in a dict or a list.
    """
    if isinstance(into, Tensor) and isinstance(saved, Tensor):
        if into.dtype == saved.dtype and torch.equal(_bits(into), _bits(saved.to(into.device))):
            return []
        into.data = saved.detach().to(into.device, into.dtype).clone()
        return [f"a tensor {tuple(saved.shape)} was replaced by the saved one"]
    if isinstance(into, dict) and isinstance(saved, dict):
        return _entries(into, [(key, saved[key]) for key in saved if key in into])
    if isinstance(into, list) and isinstance(saved, list):
        return _entries(into, list(enumerate(saved[: len(into)])))
    if isinstance(into, (list, tuple)) and isinstance(saved, (list, tuple)):
        return _each(zip(into, saved, strict=False))
    if hasattr(into, "__dict__") and hasattr(saved, "__dict__"):
        return transplant(vars(into), vars(saved))
    return []


def _entries(into: Any, saved: Sequence[tuple[Any, Any]]) -> list[str]:
    """The entries of a dict or list, tensors and plain values."""
    plain = [what for key, value in saved for what in _set(into, key, value)]
    return plain + _each((into[key], value) for key, value in saved)


def _set(into: Any, key: Any, value: Any) -> list[str]:
    """Replaces `into[key]` by a plain value that differs from it."""
    if not isinstance(value, (int, float, str, type(None))) or isinstance(into[key], Tensor):
        return []
    before, into[key] = into[key], value
    return [] if before == value else [f"{key!r} was {before!r} and is set to the saved {value!r}"]


def _each(pairs: Iterable[tuple[Any, Any]]) -> list[str]:
    return [what for into, saved in pairs for what in transplant(into, saved)]


def _bits(tensor: Tensor) -> Tensor:
    """The tensor's bytes, so that NaN equals itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.detach()


def _named(root: nn.Module) -> Iterable[tuple[str, Tensor]]:
    for named in (root.named_parameters(remove_duplicate=False), root.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            yield name, getattr(tensor, "_local_tensor", tensor)


def _bare(name: str) -> str:
    """The name without what wrappers add."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name
