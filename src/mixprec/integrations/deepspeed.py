"""DeepSpeed decides over its own steps; mixprec reads what it decided, moves its loss scale, and refuses to decide too.

    from mixprec.integrations.deepspeed import LossScaleReader

    engine, *_ = deepspeed.initialize(...)
    reader = LossScaleReader(engine, folder="runs/first")
    for inputs, targets in loader:
        loss = loss_fn(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        report = reader.read(loss)

`export_scale` and `import_scale` move the loss scale between an engine and any layout that `mixprec convert-scaler`
knows. Where DeepSpeed uses a `torch.amp.GradScaler` (`torch_autocast` in fp16 without ZeRO), `use_mixprec` puts
mixprec's in its place: DeepSpeed counts the steps that such a scaler skips as applied.

Tried with deepspeed 0.19.8 on CPU. Source:
https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/runtime/engine.py
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mixprec._scale_layouts import ScaleCheckpoint, detect, from_layout, to_layout
from mixprec._scaler import GradScaler
from mixprec.errors import InvalidValueError, MissingExtraError, MisuseError, MisuseWarning
from mixprec.monitor import StepRecord
from mixprec.monitor.alerts import Alerts
from mixprec.monitor.sinks import RunFacts
from mixprec.monitor.sinks.jsonl import JsonlSink
from mixprec.records import Finding, StepReason, StepReport, StepValues

try:
    from deepspeed import DeepSpeedEngine
except ModuleNotFoundError as error:
    raise MissingExtraError("deepspeed", "deepspeed", "mixprec.integrations.deepspeed") from error

__all__ = ["LossScaleReader", "export_scale", "import_scale", "loss_scale", "refuse_second_decider", "use_mixprec"]

_UNSCALED = (
    "This engine computes in float16 under torch_autocast with ZeRO {stage}, where DeepSpeed scales no loss: small "
    "gradients become zero. Use bfloat16, the fp16 section, or ZeRO stage 0."
)


class LossScaleReader:
    """What `engine` decided over each step, as reports, records and alerts. Call `read` after every `engine.step()`.

    Args:
        engine: what `deepspeed.initialize` returned.
        folder: where to write `rankN.jsonl`, as `Monitor` does; None keeps nothing.
        on_alert: called with each `Finding`.

    Warns: MisuseWarning MP001 for an engine that computes in float16 and scales no loss.

    **Cost**: Python only; DeepSpeed has the numbers on the host already. A host sync for the report of a
    `torch.amp.GradScaler`.
    """

    def __init__(
        self,
        engine: DeepSpeedEngine,
        *,
        folder: str | Path | None = None,
        on_alert: Callable[[Finding], Any] | None = None,
    ) -> None:
        if _unscaled(engine):
            text = _UNSCALED.format(stage=engine.zero_optimization_stage())
            warnings.warn(MisuseWarning("MP001", "torch_autocast", text), stacklevel=2)
        self.engine = engine
        self.findings: list[Finding] = []
        self._alerts, self._on_alert = Alerts(None), on_alert
        self._sink = None if folder is None else JsonlSink(folder)
        self._begun = False
        self._loss: float | None = None
        self._scale, self._steps = loss_scale(engine), int(engine.global_steps)
        self._skipped = int(engine.skipped_steps)

    def read(self, loss: Tensor | float | None = None) -> StepReport:
        """The outcome of the last `engine.step()`; `ACCUMULATING` inside a window.

        loss: what `engine.backward` was given, for the record and for the alerts that look at it.

        **Cost** a host sync for a loss on an accelerator.
        """
        if loss is not None:
            self._loss = (self._loss or 0.0) + float(loss)
        before, self._scale = self._scale, loss_scale(self.engine)
        if self.engine.global_steps == self._steps:
            return self._report(False, before, StepReason.ACCUMULATING)
        self._steps = self.engine.global_steps
        skipped = self._was_skipped(before)
        report = self._report(skipped, before, None)
        self._write(report)
        return report

    def close(self) -> None:
        """No more steps are read."""
        if self._sink is not None and self._begun:
            self._sink.close()
        self._sink = None

    def _was_skipped(self, before: float) -> bool:
        if self.engine.torch_autocast_z0_gradscaler is not None:
            return self._scale < before  # torch's scaler keeps nothing else about a step
        skipped = int(self.engine.skipped_steps) - self._skipped
        self._skipped += skipped
        return skipped > 0

    def _report(self, skipped: bool, before: float, reason: StepReason | None) -> StepReport:
        own = self.engine.torch_autocast_z0_gradscaler
        if isinstance(own, GradScaler) and reason is None:
            return own.report(self.engine.optimizer)
        norm = self.engine.get_global_grad_norm() if reason is None else None
        limit = self.engine.gradient_clipping()
        norm = None if norm is None else float(norm)
        coefficient = None if norm is None or not limit or skipped else min(1.0, limit / (norm + 1e-6))
        known = StepValues(float(skipped), before, self._scale, norm, coefficient)
        step = max(0, self._steps - 1)
        return StepReport(None, _known, step=step, reason=reason, known=known, place=_place)

    def _write(self, report: StepReport) -> None:
        record = StepRecord(
            step=report.step,
            time=time.time(),
            scale=report.scale_before,
            scale_after=report.scale_after,
            event=_event(report),
            reason=report.reason.value,
            grad_norm=report.grad_norm,
            lr=float(self.engine.get_lr()[0]),
            loss=self._loss,
        )
        self._loss = None
        if self._sink is not None:
            if not self._begun:
                rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
                self._sink.begin(RunFacts(started=time.time(), rank=rank, first_step=report.step))
                self._begun = True
            self._sink.step(record)
        for finding in self._alerts.look(record):
            self.findings.append(finding)
            if self._sink is not None:
                self._sink.finding(finding, report.step)
            if self._on_alert is not None:
                self._on_alert(finding)


def loss_scale(engine: DeepSpeedEngine) -> float:
    """The loss scale that the next backward of `engine` uses; 1.0 where it scales nothing."""
    scaler = engine.torch_autocast_z0_gradscaler
    if scaler is not None:
        return float(scaler.get_scale())
    holder = _holder(engine)
    return 1.0 if holder is None else float(holder.cur_scale)


def export_scale(engine: DeepSpeedEngine, layout: str = "mixprec") -> dict[str, Any]:
    """The loss scale of `engine` with its rules, as `layout` saves it: "mixprec", "torch", "megatron", ...

    `GradScaler("cuda").load_state_dict(export_scale(engine, "torch"))` goes on where the engine stands.

    Raises: InvalidValueError for an engine without a dynamic loss scale.
    """
    return dict(to_layout(layout, _checkpoint(engine)).mapping)


def import_scale(engine: DeepSpeedEngine, state: Mapping[str, Any]) -> None:
    """Go on in `engine` from a loss scale that was saved in any layout that is known.

    The scale and its counters are taken; the rules are those of the engine's configuration.

    Raises: InvalidValueError for an engine without a dynamic loss scale, CheckpointError for a state that is not known.
    """
    checkpoint = from_layout(detect(state), state)
    scaler = engine.torch_autocast_z0_gradscaler
    if scaler is not None:
        scaler.load_state_dict(to_layout("torch", checkpoint).mapping)
        return
    holder = _dynamic(engine)
    for name, value in to_layout(_layout(holder), checkpoint).mapping.items():
        if name in ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis"):
            setattr(holder, name, value)


def use_mixprec(engine: DeepSpeedEngine, scaler: GradScaler | None = None) -> GradScaler:
    """Put `scaler`, or a new one, in the place of the `torch.amp.GradScaler` of `engine`; returns it.

    Raises: MisuseError for an engine that scales the loss by itself or not at all.
    """
    if engine.torch_autocast_z0_gradscaler is None:
        refuse_second_decider(engine, "use_mixprec")
        text = "This engine has no GradScaler to be replaced: it has one under torch_autocast in fp16 without ZeRO."
        raise MisuseError("MP094", "use_mixprec", text)
    made = GradScaler(engine.device.type) if scaler is None else scaler
    engine.torch_autocast_z0_gradscaler = made
    return made


def refuse_second_decider(engine: DeepSpeedEngine, decider: object) -> None:
    """Raises MisuseError MP094 if `engine` decides over its steps, which `decider` is about to do as well.

    To be called by whoever has a `Precision` or a `GradScaler` and may be given an engine.
    """
    if not isinstance(engine, DeepSpeedEngine):
        return
    section = next((n for n in ("fp16", "bfloat16", "torch_autocast") if getattr(engine, f"{n}_enabled")()), None)
    if section is None:
        return
    name = decider if isinstance(decider, str) else type(decider).__name__
    key = "bf16" if section == "bfloat16" else section
    raise MisuseError(
        "MP094",
        name,
        f"DeepSpeed's configuration enables {key!r}, so its engine casts, scales and skips by itself, and {name} would "
        f"do it a second time. Leave {name} out and read the engine with LossScaleReader(engine), or take {key!r} out "
        "of the configuration.",
    )


def _holder(engine: DeepSpeedEngine) -> Any:
    """The object of DeepSpeed's that has the scale and its counters."""
    optimizer = engine.optimizer
    return getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", None)


def _dynamic(engine: DeepSpeedEngine) -> Any:
    holder = _holder(engine)
    if holder is None or not (getattr(holder, "dynamic", False) or getattr(holder, "dynamic_loss_scale", False)):
        advice = 'Enable it: {"fp16": {"enabled": true, "loss_scale": 0}}.'
        raise InvalidValueError("engine", "one without a dynamic loss scale", "one with it", advice)
    return holder


def _layout(holder: Any) -> str:
    return "deepspeed-zero" if hasattr(holder, "cur_hysteresis") else "deepspeed-fp16"


def _checkpoint(engine: DeepSpeedEngine) -> ScaleCheckpoint:
    scaler = engine.torch_autocast_z0_gradscaler
    if scaler is not None:
        return from_layout("torch", scaler.state_dict())
    holder = _dynamic(engine)
    values = {name: value for name, value in vars(holder).items() if isinstance(value, (bool, int, float))}
    return from_layout(_layout(holder), values)


def _unscaled(engine: DeepSpeedEngine) -> bool:
    half = engine.torch_autocast_enabled() and engine.torch_autocast_dtype() is torch.float16
    return bool(half and engine.torch_autocast_z0_gradscaler is None and loss_scale(engine) == 1.0)


def _event(report: StepReport) -> str:
    after, before = report.scale_after, report.scale_before
    if after is None or after == before:
        return "hold"
    return "grow" if after > before else "back_off"


def _known(values: StepValues[Any]) -> StepValues[float]:
    raise AssertionError("the numbers of a report that was read from DeepSpeed are known")


def _place(values: StepValues[float]) -> StepValues[Tensor]:
    def tensor(value: float | None) -> Tensor | None:
        return None if value is None else torch.tensor(value)

    found, before = torch.tensor(values.found_inf), torch.tensor(values.scale_before)
    return StepValues(
        found, before, tensor(values.scale_after), tensor(values.grad_norm), tensor(values.clip_coefficient)
    )
