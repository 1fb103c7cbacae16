"""Replay in the program's own process: the user gives the model and what one micro-batch does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec._trace import Tracer
from mixprec.errors import InvalidValueError
from mixprec.monitor.incident import Incident, checksum, load_incident
from mixprec.monitor.replay._look import descend, summed_up
from mixprec.monitor.replay._place import place_state
from mixprec.monitor.replay._precision import precision_override
from mixprec.monitor.replay._result import Outcome, Replay, Traced, same

__all__ = ["MicroBatch", "replay"]


@dataclass(frozen=True)
class MicroBatch:
    """What one call of the model got (`args`, `kwargs`), and the loader's batch for it (`loaded`, None without one)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loaded: Any = None


def replay(
    incident: Incident | str | Path,
    model: nn.Module,
    step: Callable[[MicroBatch], Tensor],
    *optimizers: Optimizer,
    scaler: Any = None,
    precision: str | None = None,
    deep: bool = False,
) -> Replay:
    """Runs the incident's step with `model` twice, compares the two bit for bit, then once under the tracer.

    `step(micro)` does with one micro-batch what the training loop does, forward and backward, and returns the loss
    before scaling; it does not step the optimizer. `precision` is "fp32", "bf16-mixed" or "fp16-mixed" for the
    autocast regions in it. `deep` keeps every op's record. The model is left with the incident's weights.

    Raises: CheckpointError where the model is not the incident's; InvalidValueError without micro-batches.

    **Cost** three steps, the last one about ten times as long.
    """
    incident = incident if isinstance(incident, Incident) else load_incident(incident)
    micros = _micro_batches(incident)

    def run(around: contextlib.AbstractContextManager[Any], scale: float | None = None) -> Outcome:
        place_state(incident, [model], optimizers, scaler, scale)
        _as_it_was(incident, model)
        states = incident.random("at_forward") or incident.random("before")
        if states is not None:
            states.restore()
        with around, precision_override(precision):
            losses = tuple(float(step(micro).detach().float().mean()) for micro in micros(incident))
        return Outcome(losses, _gradients(model), incident.kind)

    first, second = run(contextlib.nullcontext()), run(contextlib.nullcontext())

    def trace(scale: float | None = None) -> Traced:
        tracer = Tracer(model, keep="all", exact=True)
        run(tracer, scale)
        return summed_up(tracer, scale or incident.scale, deep)

    traced = trace()
    return Replay(
        incident=incident.folder.name,
        kind=incident.kind,
        step=incident.step,
        repeats=first.same_as(second),
        exact=precision is None and same(first.losses, incident.losses),
        outcome=first,
        traced=traced,
        precision=precision,
        notes=tuple(incident.facts["notes"]),
        avoiding_scale=None if scaler is None else descend(traced, trace),
    )


def _micro_batches(incident: Incident) -> Callable[[Incident], Iterator[MicroBatch]]:
    """A source of fresh micro-batches, so that one that a step changes in place is whole in the next run."""
    calls, loaded = incident.facts["calls"], incident.facts["loaded"]
    if not calls and not loaded:
        raise InvalidValueError(
            "incident", str(incident.folder), "an incident with batches", "It was saved with keep_batches=False."
        )

    def fresh(incident: Incident) -> Iterator[MicroBatch]:
        batches = incident.loaded()
        for number, (_, args, kwargs) in enumerate(incident.calls()):
            yield MicroBatch(args, kwargs, batches[number] if number < len(batches) else None)

    return fresh


def _as_it_was(incident: Incident, model: nn.Module) -> None:
    """Training mode by module, and no gradients."""
    evaluating = set(incident.facts["roots"][0]["evaluating"])
    for name, module in model.named_modules():
        module.training = name not in evaluating
    model.zero_grad(set_to_none=True)


def _gradients(model: nn.Module) -> dict[str, str]:
    return {f"0/{n}": checksum(p.grad) for n, p in model.named_parameters() if p.grad is not None}
