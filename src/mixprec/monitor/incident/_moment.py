"""What one step was made of, held by reference until it is saved or forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec.monitor.incident._random import RandomStates

__all__ = ["Call", "Moment"]


@dataclass(frozen=True)
class Call:
    """One call of a top-level module in training: which of `Moment.roots`, and with what."""

    root: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass
class Moment:
    """One step, as `IncidentStore.save` takes it.

    kind: `skipped` (found Inf or NaN in gradients), `loss` (the loss was not finite) or what a caller names it.
    step: counted from 0. losses: what `backward` was called on, unscaled where a scaler is known.
    roots: the modules that were called, weights as they were for this step. buffers: those of each root as they were
    at its start, by name. calls: micro-batches in order. loaded: batches that a DataLoader handed out since the last
    step. before: random states when the step began (at the end of the one before), at_forward: at its first call.
    region: the autocast region in words. notes: what is not as it was. time: when it was judged, in seconds since the
    epoch.
    weights, states: copies of what the step began with, by ids of root and parameter, and of the optimizer, where they
    were taken because the step is kept though it is healthy. scaling: entries of the scaler's state that have changed
    since. late: it is saved a step late, so that the gradients are gone.
    """

    kind: str
    step: int
    roots: tuple[nn.Module, ...] = ()
    buffers: tuple[Mapping[str, Tensor], ...] = ()
    calls: tuple[Call, ...] = ()
    loaded: tuple[Any, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    scaler: Any = None
    losses: tuple[float, ...] = ()
    scale: float | None = None
    before: RandomStates | None = None
    at_forward: RandomStates | None = None
    region: Mapping[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    time: float = 0.0
    weights: dict[int, Mapping[int, Tensor]] = field(default_factory=dict)
    states: dict[int, dict[str, Any]] = field(default_factory=dict)
    scaling: Mapping[str, Any] = field(default_factory=dict)
    late: bool = False
