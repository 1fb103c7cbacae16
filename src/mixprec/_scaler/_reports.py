"""Every step leaves a report whose numbers stay on the device until somebody reads one."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch
from torch import Tensor

from mixprec._gradients import Clipping, float32, host_number, moved, on_host
from mixprec.errors import InvalidValueError
from mixprec.records import StepReason, StepReport, StepValues

_NAMES = tuple(field.name for field in dataclasses.fields(StepValues))


class Reports:
    """The last report of each optimizer; those since the last `update` learn from it where the scale went."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[torch.optim.Optimizer, StepReport] = weakref.WeakKeyDictionary()
        self._open: list[tuple[StepReport, bool]] = []
        self._snapshot: Tensor | None = None
        self._seen = (0, 0)

    def add(
        self,
        optimizer: torch.optim.Optimizer,
        found_inf: Tensor | float,
        scale: Tensor,
        clipping: Clipping | None = None,
        reason: StepReason | None = None,
    ) -> None:
        """Files the report of a step that was just taken or skipped.

        **Cost**: Python only where the numbers are on the host; else at most 3 small kernels. No host sync.
        """
        norm, coefficient = (None, None) if clipping is None else (clipping.norm, clipping.coefficient)
        last = self._last.get(optimizer)
        step = 0 if last is None else last.step + 1
        if isinstance(found_inf, Tensor) and on_host(found_inf):
            found_inf = min(host_number(found_inf), 1.0)
        on_the_host = isinstance(found_inf, float) and on_host(scale)
        if on_the_host:
            known = StepValues(float(found_inf), host_number(scale), None, norm, coefficient)
            report = StepReport(None, _fetch, step=step, reason=reason, known=known, place=_place)
        else:
            values = (found_inf, self._before(scale), None, norm, coefficient)
            tensors = StepValues(*(_tensor(value, scale.device) for value in values))
            report = StepReport(tensors, _fetch, step=step, reason=reason)
        self._last[optimizer] = report
        self._open.append((report, on_the_host))

    def close(self, scale: Tensor) -> None:
        """Tells the open reports the scale after `update`. Cost: 1 small kernel on accelerators."""
        for report, known in self._open:
            report.complete_(host_number(scale) if known else self._before(scale))
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
        """A copy of `scale` as it is now, made once as long as nobody writes to it."""
        if self._snapshot is None or self._seen != (id(scale), scale._version):
            self._snapshot, self._seen = scale.clone(), (id(scale), scale._version)
        return self._snapshot


def _tensor(value: Any, device: torch.device) -> Tensor | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        return moved(value, device).to(torch.float32)
    return float32(value, device)


def _place(values: StepValues[float]) -> StepValues[Any]:
    """Numbers of the host as tensors on the host."""
    return StepValues(*(_tensor(getattr(values, name), torch.device("cpu")) for name in _NAMES))


def _fetch(values: StepValues[Any]) -> StepValues[float]:
    """All numbers with one copy to the host."""
    present = [name for name in _NAMES if getattr(values, name) is not None]
    stacked = torch.stack([getattr(values, name).to(torch.float32) for name in present])
    numbers: dict[str, Any] = dict(zip(present, stacked.tolist(), strict=True))
    return StepValues(**{name: numbers.get(name) for name in _NAMES})
