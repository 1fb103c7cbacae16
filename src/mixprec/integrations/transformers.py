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

import logging
from pathlib import Path
from typing import Any

from mixprec._policy import Policy
from mixprec._scaler import GradScaler
from mixprec.errors import InvalidValueError, MissingExtraError
from mixprec.monitor import Monitor, read_run
from mixprec.monitor.incident import IncidentStore, IncidentWatch
from mixprec.records import Finding, StepReport
from mixprec.report.html import run_page
from mixprec.report.run_summary import summarise

try:
    from transformers import Trainer, TrainerCallback

    from mixprec.integrations.accelerate import use_mixprec
except ModuleNotFoundError as error:
    raise MissingExtraError("transformers", "transformers", "mixprec.integrations.transformers") from error

__all__ = ["MixprecCallback", "MixprecTrainer", "MixprecTrainerMixin"]

logger = logging.getLogger("mixprec.integrations")


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

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; each `MixprecCallback` is told what the step is given."""
        for callback in self.callback_handler.callbacks:  # type: ignore[attr-defined] # as above
            if isinstance(callback, MixprecCallback):
                callback.given(inputs)
        return super().training_step(model, inputs, *args, **kwargs)  # type: ignore[misc] # as above

    @property
    def report(self) -> StepReport:
        """The outcome of the last step. Raises: InvalidValueError before the first, and without fp16."""
        report: StepReport = self.accelerator.report(self.optimizer)  # type: ignore[attr-defined] # as above
        return report


class MixprecTrainer(MixprecTrainerMixin, Trainer):  # type: ignore[misc] # transformers' types are not looked at
    """`transformers.Trainer` with `scaler` and `policy`."""


class MixprecCallback(TrainerCallback):  # type: ignore[misc] # transformers' types are not looked at
    """Watches the training with a `Monitor`, keeps failing steps, and adds to what the Trainer logs.

    `loss_scale` and `skipped_steps` are in each line of the log. With a `folder`, steps that were skipped, or whose
    loss was not finite, are kept in `folder/incidents`, and at the end `folder/report.html` is written, if the extra
    `report` is installed.

    Args:
        folder: where the monitor writes, a `rankN.jsonl` per rank; None keeps records in memory, and no steps.
        level: the monitor's: `"light"`, `"standard"` or `"deep"`.
        incidents: whether failing steps are kept; or an `IncidentStore`, which needs no folder.
        page: whether a page is written.

    It works with any Trainer, mixprec's or not. `findings` are what the monitor warned of. A kept step holds the
    arguments of the model's call, which is where the Trainer puts a batch; its loader is a batch ahead, so loaded
    batches are kept only under `MixprecTrainer`, which tells what each step was given. `mixprec replay` runs a kept
    step again by the command that was recorded, `mixprec.monitor.replay.replay` with a model and a step in Python.

    **Cost**: the monitor's and `IncidentWatch`'s; one host sync where the Trainer logs, which syncs anyway.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        level: str = "light",
        *,
        incidents: bool | IncidentStore = True,
        page: bool = True,
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._level, self._keeps, self._page = level, incidents, page
        self._watch: _Watch | None = None
        self.monitor: Monitor | None = None
        self.findings: list[Finding] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The model and the optimizer are known from here on."""
        self._close()  # of a training that ended in an error
        inner = kwargs["optimizer"]
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        store = self._store()
        if store is not None:
            self._watch = _Watch(store)
            self._watch.__enter__()
        self.monitor = Monitor(kwargs["model"], inner, folder=self._folder, level=self._level, on_alert=self._alerted)

    def given(self, inputs: Any) -> None:
        """What the Trainer's next micro-batch is, for the step that is kept if it fails."""
        if self._watch is not None:
            self._watch.keep(inputs)

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
        """The monitor writes what it still holds, and rank 0 the page."""
        self._close()
        if self._page and self._folder is not None and state.is_world_process_zero:
            _write_page(self._folder)

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self.monitor is not None:
            self.monitor.close()

    def _store(self) -> IncidentStore | None:
        if isinstance(self._keeps, IncidentStore):
            return self._keeps
        return IncidentStore(self._folder / "incidents") if self._keeps and self._folder is not None else None

    def _alerted(self, finding: Finding) -> None:
        self.findings.append(finding)
        if self._watch is not None:
            self._watch.alerted(finding)


class _Watch(IncidentWatch):
    """The Trainer's loader is a batch ahead of the step: what it hands out is not what this step gets."""

    def batch_loaded(self, iterator: Any, batch: Any) -> None:
        """What `keep` was given."""
        if iterator is None:
            super().batch_loaded(iterator, batch)


def _write_page(folder: Path) -> None:
    """Writes the run's page, or says how to; a training that is over is not failed by it."""
    try:
        page = folder / "report.html"
        page.write_text(run_page(summarise(read_run(folder)), page), encoding="utf-8")
    except (MissingExtraError, InvalidValueError, OSError) as error:
        logger.info("No page was written (%s): mixprec report %s", error, folder)
