"""The Transformers Trainer with mixprec's scaler, policy and monitor.

    from mixprec.integrations.transformers import MixprecCallback, MixprecTrainer

    watch = MixprecCallback("runs/first")
    trainer = MixprecTrainer(model, args, train_dataset=data, policy="uniform", callbacks=[watch])
    trainer.train()
    trainer.report

`MixprecTrainerMixin` does the same for a Trainer class of your own. Precision is chosen as ever, by `fp16=True` or
`bf16=True` in the arguments. What differs from the Trainer's own: its schedule stands still also when a fused optimizer
skips, fp16 is fp16 on a CPU too, and every step has a report.

Tried with transformers 5.24.0 and accelerate 1.15.0. Source:
https://github.com/huggingface/transformers/blob/v5.24.0/src/transformers/trainer.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mixprec._policy import Policy
from mixprec._scaler import GradScaler
from mixprec.errors import MissingExtraError
from mixprec.monitor import Monitor
from mixprec.records import Finding, StepReport

try:
    from transformers import Trainer, TrainerCallback

    from mixprec.integrations.accelerate import use_mixprec
except ModuleNotFoundError as error:
    raise MissingExtraError("transformers", "transformers", "mixprec.integrations.transformers") from error

__all__ = ["MixprecCallback", "MixprecTrainer", "MixprecTrainerMixin"]


class MixprecTrainerMixin:
    """To stand before a Trainer class: `class Mine(MixprecTrainerMixin, Seq2SeqTrainer)`.

    Args:
        scaler: a `mixprec.GradScaler` for `fp16=True`; None makes one.
        policy: a `Policy`, its name or its text; None is PyTorch's own list.

    Every other argument is the Trainer's. Raises: InvalidValueError as `MixprecAccelerator`.
    """

    def __init__(
        self, *args: Any, scaler: GradScaler | None = None, policy: Policy | str | None = None, **kwargs: Any
    ) -> None:
        self._mixprec = (scaler, policy)  # the Trainer makes its accelerator inside its constructor
        super().__init__(*args, **kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        """As the Trainer's, with the accelerator made ours."""
        super().create_accelerator_and_postprocess()  # type: ignore[misc] # the class that it is mixed into has it
        scaler, policy = self._mixprec
        use_mixprec(self.accelerator, scaler=scaler, policy=policy)  # type: ignore[attr-defined] # as above

    @property
    def report(self) -> StepReport:
        """The outcome of the last step. Raises: InvalidValueError before the first, and without fp16."""
        report: StepReport = self.accelerator.report(self.optimizer)  # type: ignore[attr-defined] # as above
        return report


class MixprecTrainer(MixprecTrainerMixin, Trainer):  # type: ignore[misc] # transformers' types are not looked at
    """`transformers.Trainer` with `scaler` and `policy`."""


class MixprecCallback(TrainerCallback):  # type: ignore[misc] # transformers' types are not looked at
    """Watches the training with a `Monitor`, and adds `loss_scale` and `skipped_steps` to what the Trainer logs.

    Args:
        folder: where the monitor writes, a `rankN.jsonl` per rank; None keeps records in memory.
        level: the monitor's: `"light"`, `"standard"` or `"deep"`.

    It works with any Trainer, mixprec's or not. `findings` are what the monitor warned of.

    **Cost**: the monitor's; one host sync where the Trainer logs, which syncs anyway.
    """

    def __init__(self, folder: str | Path | None = None, level: str = "light") -> None:
        self._folder = folder
        self._level = level
        self.monitor: Monitor | None = None
        self.findings: list[Finding] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The model and the optimizer are known from here on."""
        inner = kwargs["optimizer"]
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        folder = self._folder
        self.monitor = Monitor(kwargs["model"], inner, folder=folder, level=self._level, on_alert=self.findings.append)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Once per entry of the log."""
        if self.monitor is None or logs is None or "loss" not in logs:
            return
        self.monitor.flush()
        if self.monitor.records:
            last = self.monitor.records[-1]
            more = {"loss_scale": last.scale, "skipped_steps": sum(not r.applied for r in self.monitor.records)}
            logs.update(more)
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1].update(more)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The monitor writes what it still holds."""
        if self.monitor is not None:
            self.monitor.close()
