"""The table of the contract: each row trains the same small regression in one stack, and tells the same things of it.

A driver runs steps `first` to `last` from a saved state and gives a `Run`. In every stack step `i` sees batch `i`,
and its loss is multiplied by infinity if `i` is in `overflow`.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler

from mixprec import GradScaler, Precision
from mixprec.records import StepReport

RATE = 0.125


@dataclass(frozen=True)
class Setting:
    """What is varied. `fused`: the optimizer skips by itself. `watch` is told the model and the optimizer."""

    overflow: tuple[int, ...] = ()
    max_norm: float | None = None
    fused: bool = False
    adam: bool = False
    watch: Callable[[nn.Module, torch.optim.Optimizer], Any] | None = None


@dataclass
class Run:
    """Per step: parameters after it, its report, the learning rate after it, what the loss's gradient was multiplied
    by. `logged` are the steps that the stack's own log has, where it has one; `state` resumes.
    """

    parameters: list[list[Tensor]] = field(default_factory=list)
    reports: list[StepReport] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    multipliers: list[float] = field(default_factory=list)
    logged: list[int] | None = None
    state: Any = None

    def note(self, model: nn.Module, report: StepReport, optimizer: torch.optim.Optimizer) -> None:
        """A step is over."""
        self.parameters.append([p.detach().clone() for p in model.parameters()])
        self.reports.append(report)
        self.rates.append(optimizer.param_groups[0]["lr"])


class Net(nn.Module):
    """Its loss, times `factor`; what backward gives the loss is noted in `seen`."""

    def __init__(self, seen: list[float] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)
        self.seen = [] if seen is None else seen

    def forward(self, x: Tensor, y: Tensor, factor: Tensor) -> dict[str, Tensor]:
        loss = 0.25 * (self.linear(x).float() - y).square().mean()
        if loss.requires_grad:
            loss.register_hook(lambda g: self.seen.append(g.item() if g.isfinite() else float("inf")))
        return {"loss": loss * factor.reshape(-1)[0]}

    def __deepcopy__(self, memo: Any) -> Net:
        copied = Net()
        copied.load_state_dict(self.state_dict())
        return copied


def batch(step: int, overflow: tuple[int, ...], rank: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(4, 8, generator=generator)
    factor = torch.full((4,), float("inf") if step in overflow else 1.0)
    return {"x": x, "y": x[:, :4] * 0.5, "factor": factor}


def make_optimizer(model: nn.Module, setting: Setting) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if setting.adam else torch.optim.SGD
    optimizer = kind(model.parameters(), RATE, fused=setting.fused)
    if setting.watch is not None:
        setting.watch(model, optimizer)
    return optimizer


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


Driver = Callable[[int, int, Setting, Any], Run]


def scaler(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """A loop of one's own with the drop-in scaler."""
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer, made = make_optimizer(model, setting), GradScaler("cpu")
    schedule = make_schedule(optimizer)
    if state is not None:
        for part, saved in zip((model, optimizer, made, schedule), state, strict=True):
            part.load_state_dict(saved)
    for step in range(first, last):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(**batch(step, setting.overflow))["loss"]
        made.scale(loss).backward()
        made.step(optimizer, max_norm=setting.max_norm)
        made.update()
        if made.report(optimizer).applied:
            schedule.step()
        run.note(model, made.report(optimizer), optimizer)
    run.state = copy.deepcopy([part.state_dict() for part in (model, optimizer, made, schedule)])
    return run


def precision(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The front door."""
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer = make_optimizer(model, setting)
    schedule = make_schedule(optimizer)
    door = Precision("fp16-mixed", optimizer, model=model, max_norm=setting.max_norm, scheduler=schedule)
    if state is not None:
        for part, saved in zip((model, optimizer, schedule, door), state, strict=True):
            part.load_state_dict(saved)
    for step in range(first, last):
        with door.autocast():
            loss = model(**batch(step, setting.overflow))["loss"]
        door.backward(loss)
        run.note(model, door.step(), optimizer)
    run.state = copy.deepcopy([part.state_dict() for part in (model, optimizer, schedule, door)])
    return run


def accelerate(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """Accelerate's accelerator, prepared model, optimizer and schedule."""
    from accelerate.state import AcceleratorState, PartialState

    from mixprec.integrations.accelerate import MixprecAccelerator

    AcceleratorState._reset_state()
    PartialState._reset_state()
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer = make_optimizer(model, setting)
    accelerator = MixprecAccelerator(mixed_precision="fp16", cpu=True)
    prepared, stepped, schedule = accelerator.prepare(model, optimizer, make_schedule(optimizer))
    if state is not None:
        accelerator.load_state(state)
    for step in range(first, last):
        loss = prepared(**batch(step, setting.overflow))["loss"]
        accelerator.backward(loss)
        if setting.max_norm is not None:
            accelerator.clip_grad_norm_(prepared.parameters(), setting.max_norm)
        stepped.step()
        schedule.step()
        stepped.zero_grad()
        run.note(model, accelerator.report(stepped), optimizer)
    run.state = tempfile.mkdtemp()
    accelerator.save_state(run.state)
    return run


def fabric(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """Lightning Fabric."""
    from lightning.fabric import Fabric

    from mixprec.integrations.lightning import MixprecFabricPrecision

    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer = make_optimizer(model, setting)
    schedule = make_schedule(optimizer)
    plugin = MixprecFabricPrecision("fp16-mixed", "cpu", max_norm=setting.max_norm)
    made = Fabric(accelerator="cpu", devices=1, plugins=[plugin])
    wrapped, stepped = made.setup(model, optimizer)
    if state is not None:
        for part, saved in zip((model, optimizer, plugin, schedule), state, strict=True):
            part.load_state_dict(saved)
    for step in range(first, last):
        stepped.zero_grad()
        made.backward(wrapped(**batch(step, setting.overflow))["loss"])
        stepped.step()
        if plugin.report.applied:
            schedule.step()
        run.note(model, plugin.report, optimizer)
    run.state = copy.deepcopy([part.state_dict() for part in (model, optimizer, plugin, schedule)])
    return run


def lightning(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """Lightning's Trainer; an epoch is one step, so that a checkpoint at its end resumes exactly."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback

    from mixprec.integrations.lightning import MixprecPrecision

    run = Run()
    plugin = MixprecPrecision("fp16-mixed", "cpu")

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.net.seen = run.multipliers

        def training_step(self, data: Any, index: int) -> Tensor:
            return self.net(**data)["loss"]

        def train_dataloader(self) -> DataLoader:
            return DataLoader([batch(self.trainer.current_epoch, setting.overflow)], batch_size=None)

        def configure_optimizers(self) -> Any:
            optimizer = make_optimizer(self.net, setting)
            return [optimizer], [{"scheduler": make_schedule(optimizer), "interval": "step"}]

        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            if plugin.report.applied:
                scheduler.step()

    class Noting(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            run.note(module.net, plugin.report, trainer.optimizers[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's hints, and what it uses that pytree deprecates
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=last,
            plugins=[plugin],
            gradient_clip_val=setting.max_norm,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            reload_dataloaders_every_n_epochs=1,
            callbacks=[Noting()],
        )
        trainer.fit(Module(), ckpt_path=state, weights_only=False)
        run.state = str(Path(tempfile.mkdtemp()) / "last.ckpt")
        trainer.save_checkpoint(run.state)
    return run


def transformers(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The Transformers Trainer, with its own checkpoints and log."""
    from accelerate.state import AcceleratorState, PartialState
    from transformers import TrainerCallback, TrainingArguments

    from mixprec.integrations.transformers import MixprecTrainer

    AcceleratorState._reset_state()
    PartialState._reset_state()
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer = make_optimizer(model, setting)
    data = [{k: v[row] for k, v in batch(step, setting.overflow).items()} for step in range(8) for row in range(4)]

    class InOrder(MixprecTrainer):
        def _get_train_sampler(self, *_: Any) -> SequentialSampler:
            return SequentialSampler(data)

    class Noting(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            run.note(model, trainer.report, optimizer)

    folder = tempfile.mkdtemp() if state is None else str(Path(state).parent)
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")  # Transformers' and torchao's own
        arguments = TrainingArguments(
            folder,
            fp16=True,
            use_cpu=True,
            per_device_train_batch_size=4,
            max_steps=last,
            logging_steps=1,
            save_steps=1,
            max_grad_norm=setting.max_norm or 0.0,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = InOrder(
            model,
            arguments,
            train_dataset=data,
            optimizers=(optimizer, make_schedule(optimizer)),
            callbacks=[Noting()],
        )
        trainer.train(resume_from_checkpoint=state)
    run.logged = [entry["step"] - 1 for entry in trainer.state.log_history if "loss" in entry]
    run.state = f"{folder}/checkpoint-{last}"
    return run


DRIVERS: dict[str, tuple[str | None, Driver]] = {
    "scaler": (None, scaler),
    "precision": (None, precision),
    "accelerate": ("accelerate", accelerate),
    "fabric": ("lightning", fabric),
    "lightning": ("lightning", lightning),
    "transformers": ("transformers", transformers),
}
"""Stack to the package that it needs, and its driver."""
