"""An optimizer phase reads, agrees, then delivers: every gradient is read before any parameter is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mixprec._agreement import Agreement
from mixprec._gradients import (
    Clipping,
    Gradients,
    Plans,
    Reader,
    Reading,
    collect,
    host_number,
    moved,
    refuse_half,
    wide,
)
from mixprec._kernels import Means
from mixprec._scaler._contract import Contract, SafeSkips, takes_no_flag

_NOTHING = Gradients([])


@dataclass(eq=False, slots=True)
class Turn:
    """One optimizer's part in a step.

    `scale` is what its gradients carry, None once they are unscaled; `flags` are the verdict of an earlier check, which
    stands unless `recheck` has the gradients judged again. `gradients` are filled in by `collect`.
    """

    optimizer: torch.optim.Optimizer
    contract: Contract
    scale: Tensor | None
    flags: list[Tensor] = field(default_factory=list)
    recheck: bool = False
    params: list[Tensor] = field(default_factory=list)
    gradients: Gradients = _NOTHING

    def collect(self, agreement: Agreement, plans: Plans, *, keep_half: bool) -> None:
        """Looks up the gradients. Raises: HalfGradientsError where they would be unscaled in float16."""
        self.params, plan = plans.of(self.optimizer)
        share = None if agreement.size == 1 else agreement.share
        self.gradients = collect(self.params, share=share, coalesce=True, plan=plan)
        multiplied_here = self.contract is not Contract.FUSED and self.scale is not None
        if multiplied_here and not keep_half and self.gradients.has_half():
            refuse_half(self.optimizer)

    @property
    def counts(self) -> bool:
        """Whether there is anything here to judge."""
        return bool(self.gradients.tensors or self.flags)


@dataclass(slots=True)
class Outcome:
    """What the gradients of a step amount to, agreed by all ranks; `flag` is found_inf as a tensor for the device.

    `clipping` is None where the gradients did not have to be read.
    """

    reader: Reader
    reading: Reading
    clipping: Clipping | None
    flag: Tensor
    means: Means
    _found: bool | None = None

    @property
    def coefficient(self) -> Any:
        """What the gradients are multiplied by; None or 1.0 where that is known to be nothing."""
        return None if self.clipping is None else self.clipping.coefficient

    def found(self) -> bool:
        """Whether to skip, for the host. Cost: one host sync on accelerators, the first time."""
        if self._found is None:
            self._found = bool(self.reading.found_inf)
        return self._found


def resolve(
    turns: Sequence[Turn],
    agreement: Agreement,
    device: torch.device,
    max_norm: float | None,
    *,
    below_one: bool,
    means: Means,
    before: Tensor | None = None,
    needs_amax: bool = False,
) -> Outcome:
    """Reads the gradients of all `turns` once, as one: one flag, one global norm, one clip coefficient.

    Gradients that were unscaled and checked before are read only for their norm, if one is asked for. `before` is the
    flag of the last step: it is used again if it says what is found now.

    **Cost**: one read of the gradients; one collective of 16 bytes where ranks have to agree; no host sync on
    accelerators. `needs_amax`, for the largest magnitude of those that are still scaled, takes a second read, and 24
    bytes of every rank.
    """
    devices = {device}.union(*[turn.gradients.devices() for turn in turns])
    reader = means.reader(devices, below_one=below_one, max_norm=max_norm)
    unread = [turn for turn in turns if turn.scale is not None or turn.recheck]
    if max_norm is None and not unread:
        flag = largest([flag for turn in turns for flag in turn.flags], device)
        return Outcome(reader, Reading(reader.number(flag), 0.0), None, flag, means)
    joint = len(turns) > 1
    readings = [_read(reader, turn, device, joint) for turn in turns]
    if needs_amax:
        readings = [_with_amax(reader, reading, turn, device) for reading, turn in zip(readings, turns, strict=True)]
    reading = reader.agreed(readings, agreement, device) if joint or agreement.size > 1 else readings[0]
    clipping = reader.clipping(reading, None if joint else turns[0].scale, max_norm)
    return Outcome(reader, reading, clipping, _flag(reader, reading.found_inf, device, before), means)


def _flag(reader: Reader, found_inf: Any, device: torch.device, before: Tensor | None) -> Tensor:
    """`found_inf` as a tensor: `before` if that says so, since making one costs more than the arithmetic of a step."""
    if isinstance(found_inf, float) and before is not None and before.device == device:
        return before if host_number(before) == found_inf else reader.tensor(found_inf, device)
    return reader.tensor(found_inf, device)


def _read(reader: Reader, turn: Turn, device: torch.device, joint: bool) -> Reading:
    reading = reader.read(turn.gradients, turn.scale, device)
    if turn.scale is None:
        known = Reading(reader.number(largest(turn.flags, device)), reading.square_sum)
        return reader.either(known, reading) if turn.recheck else known
    return reader.unscaled(reading, turn.scale) if joint else reading


def _with_amax(reader: Reader, reading: Reading, turn: Turn, device: torch.device) -> Reading:
    """The magnitude of gradients that were unscaled before was noted then."""
    scaled = turn.gradients if turn.scale is not None else _NOTHING
    return replace(reading, amax=reader.amax(scaled, device))


def amax_of(optimizer: torch.optim.Optimizer, plans: Plans, means: Means, device: torch.device) -> Any:
    """The largest magnitude of the gradients of `optimizer` on this rank, as its reader holds it. Cost: one read."""
    params, plan = plans.of(optimizer)
    gradients = collect(params, plan=plan)
    return means.reader({device, *gradients.devices()}, below_one=False, max_norm=None).amax(gradients, device)


def agreed(
    agreement: Agreement, flags: dict[torch.device, Tensor], amax: Any, device: torch.device
) -> tuple[dict[torch.device, Tensor], Any]:
    """Flags and largest magnitude (None: not asked for) after all ranks have had their say; alone, as they are."""
    if agreement.size == 1:
        return flags, amax
    flag = largest(flags.values(), device)
    if amax is None:
        return {device: agreement.agree(flag)}, None
    found = flag.reshape(1).to(wide(device))
    total, most = agreement.total_and_largest(found, torch.as_tensor(amax, dtype=found.dtype, device=device))
    return {device: (total[0] != 0).to(flag.dtype)}, most


def largest(flags: Iterable[Tensor], device: torch.device) -> Tensor:
    """The largest of `flags` on `device`, 0 if there is none. The result is not written to by anyone."""
    here = [moved(flag if flag.ndim == 0 else flag.reshape(()), device) for flag in flags]
    if not here:
        return torch.zeros((), dtype=torch.float32, device=device)
    return here[0] if len(here) == 1 else torch.stack(here).amax()


def multiply(turns: Iterable[Turn], outcome: Outcome) -> None:
    """Unscales and clips the gradients of plain optimizers in place. Cost: one read, one write; none for fused ones."""
    for turn in turns:
        if turn.contract is Contract.PLAIN:
            multiplier = outcome.reader.multiplier(turn.scale, outcome.coefficient)
            if multiplier is not None:
                outcome.means.multiply_(turn.gradients, multiplier, torch.zeros_like(outcome.flag))
            turn.scale = None


def deliver(
    turns: Iterable[Turn], outcome: Outcome, skips: SafeSkips, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Hands the outcome to every optimizer; what their `step` returned, None where it was not called.

    **Cost**: for a fused optimizer that may skip by itself, its own kernels. For any other its own, and one host sync
    on accelerators for all of them.
    """
    return [_step(turn, outcome, skips, args, kwargs) for turn in turns]


def _step(turn: Turn, outcome: Outcome, skips: SafeSkips, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if turn.contract is Contract.PLAIN:
        return None if outcome.found() else turn.optimizer.step(*args, **kwargs)
    divide_by = _divisor(turn, outcome)
    if isinstance(outcome.reading.found_inf, float) and not outcome.found() and takes_no_flag(turn.optimizer):
        result = fused_step(turn.optimizer, divide_by, None, args, kwargs)
        skips.stepped(turn.optimizer, turn.params)
        return result
    if skips.may_skip(turn.optimizer, turn.params):
        return fused_step(turn.optimizer, divide_by, outcome.flag, args, kwargs)
    if outcome.found():
        return None
    result = fused_step(turn.optimizer, divide_by, outcome.flag, args, kwargs)
    skips.stepped(turn.optimizer, turn.params)
    return result


def _divisor(turn: Turn, outcome: Outcome) -> Tensor | None:
    """What a fused optimizer is to divide its gradients by; None where that is 1."""
    coefficient, preset = outcome.coefficient, getattr(turn.optimizer, "grad_scale", None)
    if turn.scale is not None:
        scale = outcome.reader.divisor(turn.scale, coefficient)
    elif coefficient is None or (isinstance(coefficient, float) and coefficient == 1.0):
        return preset
    else:
        scale = outcome.reader.divisor(torch.ones_like(outcome.flag), coefficient)
    return scale if preset is None else scale * preset


def fused_step(
    optimizer: Any, divide_by: Tensor | None, found_inf: Tensor | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Steps a fused optimizer with the attributes of its contract set, which are gone afterwards whatever happens."""
    optimizer.grad_scale = divide_by
    optimizer.found_inf = found_inf
    try:
        return optimizer.step(*args, **kwargs)
    finally:
        del optimizer.grad_scale
        del optimizer.found_inf


def step_unscaled(
    turns: Sequence[Turn],
    agreement: Agreement,
    plans: Plans,
    max_norm: float,
    means: Means,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[list[Any], Outcome]:
    """Clips gradients that never were scaled and steps whatever they are, as a disabled scaler does."""
    for turn in turns:
        turn.collect(agreement, plans, keep_half=True)
    device = next((tensor.device for turn in turns for tensor in turn.gradients.tensors), torch.device("cpu"))
    outcome = resolve(turns, agreement, device, max_norm, below_one=False, means=means)
    multiply(turns, outcome)
    results = [
        turn.optimizer.step(*args, **kwargs)
        if turn.contract is Contract.PLAIN
        else fused_step(turn.optimizer, _divisor(turn, outcome), None, args, kwargs)
        for turn in turns
    ]
    return results, outcome
