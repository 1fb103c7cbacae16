"""Every step leaves a report whose numbers stay on the device until somebody reads one."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch
from torch import Tensor

from mixprec._scaler._phase import Outcome
from mixprec.errors import InvalidValueError
from mixprec.records import StepReason, StepReport, StepValues

_NAMES = tuple(field.name for field in dataclasses.fields(StepValues))


class Reports:
    """The last report of each optimizer; those since the last `update` learn from it where the scale went."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[torch.optim.Optimizer, StepReport] = weakref.WeakKeyDictionary()
        self._open: list[StepReport] = []
        self._snapshot: Tensor | None = None
        self._seen = (0, 0)

    def add(
        self,
        optimizer: torch.optim.Optimizer,
        found_inf: Tensor,
        scale: Tensor,
        outcome: Outcome | None = None,
        reason: StepReason | None = None,
    ) -> StepReport:
        """Files the report of a step that was just taken or skipped. Cost: at most 3 small kernels, no host sync."""
        values = StepValues(found_inf, self._before(scale), None, *_clipping(outcome, scale.device))
        step = self._last[optimizer].step + 1 if optimizer in self._last else 0
        report = StepReport(values, _fetch, step=step, reason=reason)
        self._last[optimizer] = report
        self._open.append(report)
        return report

    def close(self, scale: Tensor) -> None:
        """Tells the open reports the scale after `update`. Cost: 1 small kernel."""
        self._snapshot, self._seen = scale.clone(), (id(scale), scale._version)
        for report in self._open:
            report.complete_(self._snapshot)
        self._open.clear()

    def last(self, optimizer: torch.optim.Optimizer) -> StepReport:
        """The report of the last step of `optimizer`. Raises: InvalidValueError if there was none."""
        report = self._last.get(optimizer)
        if report is None:
            raise InvalidValueError(
                "optimizer", type(optimizer).__name__, "an optimizer that this scaler has stepped", "Call step first."
            )
        return report

    def _before(self, scale: Tensor) -> Tensor:
        """A copy of `scale` as it is now: the one made at the last update, unless it was changed since."""
        if self._snapshot is None or self._seen != (id(scale), scale._version):
            self._snapshot, self._seen = scale.clone(), (id(scale), scale._version)
        return self._snapshot


def _clipping(outcome: Outcome | None, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
    if outcome is None or outcome.clipping is None:
        return None, None
    norm, coefficient = outcome.clipping.norm, outcome.clipping.coefficient
    tensor = outcome.reader.tensor
    return tensor(norm, device), None if coefficient is None else tensor(coefficient, device)


def _fetch(values: StepValues[Any]) -> StepValues[float]:
    """All numbers with one copy to the host."""
    present = [name for name in _NAMES if getattr(values, name) is not None]
    stacked = torch.stack([getattr(values, name).to(torch.float32) for name in present])
    numbers: dict[str, Any] = dict(zip(present, stacked.tolist(), strict=True))
    return StepValues(**{name: numbers.get(name) for name in _NAMES})
