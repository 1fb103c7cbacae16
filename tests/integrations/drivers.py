"""The table of the contract: each row trains the same small regression in one stack, and tells the same things of it.

A driver runs steps `first` to `last` from a saved state and gives a `Run`. In every stack step `i` sees batch `i`,
and its loss is multiplied by infinity if `i` is in `overflow`; among ranks all see the same batch, and the last rank's
loss alone overflows.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler

from mixprec import GradScaler, Precision, ShardedGradScaler
from mixprec.monitor import Monitor, read_run
from mixprec.records import StepReport

RATE = 0.125


@dataclass(frozen=True)
class Setting:
    """What is varied. `fused`: the optimizer skips by itself. `monitored`: a monitor is told model and optimizer."""

    overflow: tuple[int, ...] = ()
    max_norm: float | None = None
    fused: bool = False
    adam: bool = False
    monitored: bool = False


@dataclass(frozen=True)
class Outcome:
    """What the report of a step says."""

    step: int
    applied: bool
    reason: str
    scale_before: float
    scale_after: float


@dataclass
class Run:
    """Per step: parameters after it, its report, the learning rate after it, what the loss's gradient was multiplied
    by. `logged` are the steps that the stack's own log has, where it has one; `watched` and `findings` are the
    monitor's; `state` resumes.
    """

    parameters: list[list[Tensor]] = field(default_factory=list)
    reports: list[Outcome] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    multipliers: list[float] = field(default_factory=list)
    logged: list[int] | None = None
    watched: list[tuple[int, str, float | None]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    state: Any = None
    monitor: Monitor | None = None

    def note(self, model: nn.Module, report: StepReport, optimizer: torch.optim.Optimizer) -> None:
        """A step is over."""
        self.parameters.append(whole(model))
        before, after = report.scale_before, report.scale_after
        self.reports.append(Outcome(report.step, report.applied, report.reason.value, before, after))
        self.rates.append(float(optimizer.param_groups[0]["lr"]))

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """From here a monitor listens that is told model and optimizer."""
        self.monitor = Monitor(model, optimizer)

    def finish(self) -> Run:
        """What the monitor has is read, and it goes."""
        if self.monitor is not None:
            self.monitor.close()
            self.watched = [(record.step, record.reason, record.scale) for record in self.monitor.records]
            self.findings = [finding.code for finding in self.monitor.findings]
            self.monitor = None
        return self


def whole(model: nn.Module) -> list[Tensor]:
    """Copies of all parameters in full, whatever shards them."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [p.detach().clone() for p in full]


class Layer(nn.Linear):
    """One that the compiler takes for the user's own code."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Net(nn.Module):
    """Its loss, times `factor`; what backward gives the loss is noted in `seen`."""

    def __init__(self, seen: list[float] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = Layer(8, 4)
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


def batch(step: int, overflow: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(100 * step)
    x = torch.randn(4, 8, generator=generator)
    last = not dist.is_initialized() or dist.get_rank() == dist.get_world_size() - 1
    factor = torch.full((4,), float("inf") if step in overflow and last else 1.0)
    return {"x": x, "y": x[:, :4] * 0.5, "factor": factor}


def make_optimizer(model: nn.Module, setting: Setting, run: Run) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if setting.adam else torch.optim.SGD
    return _watched(kind(model.parameters(), RATE, fused=setting.fused), model, setting, run)


def _watched(optimizer: torch.optim.Optimizer, model: nn.Module, setting: Setting, run: Run) -> torch.optim.Optimizer:
    if setting.monitored:
        run.watch(model, optimizer)
    return optimizer


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


Driver = Callable[[int, int, Setting, Any], Run]


def scaler(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """A loop of one's own with the drop-in scaler."""
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer, made = make_optimizer(model, setting, run), GradScaler("cpu")
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


def precision(first: int, last: int, setting: Setting, state: Any = None, make: Any = make_optimizer) -> Run:
    """The front door."""
    return _through_the_door(Net(), first, last, setting, state, make)


def _through_the_door(
    model: nn.Module, first: int, last: int, setting: Setting, state: Any, make: Any = make_optimizer
) -> Run:
    run = Run()
    _inner(model).seen = run.multipliers
    optimizer = make(model, setting, run)
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


def _inner(model: nn.Module) -> Any:
    return getattr(model, "module", model)


def compiled(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The front door around a compiled layer."""
    torch._dynamo.reset()
    model = Net()
    model.linear.compile(backend="aot_eager", fullgraph=True)
    return _through_the_door(model, first, last, setting, state)


def ddp(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The front door, and torch's DistributedDataParallel."""
    return _through_the_door(nn.parallel.DistributedDataParallel(Net()), first, last, setting, state)


def fsdp1(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """FullyShardedDataParallel with its own mixed precision, and the sharded scaler."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), mixed_precision=half, use_orig_params=True)
    return _sharded(model, first, last, setting, state)


def fsdp2(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """fully_shard with its own mixed precision, and the sharded scaler. PyTorch shards no fused SGD: it is AdamW."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    model = fully_shard(Net(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)), mp_policy=half)
    return _sharded(model, first, last, replace(setting, adam=setting.adam or setting.fused), state)


def _sharded(model: nn.Module, first: int, last: int, setting: Setting, state: Any) -> Run:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    run = Run()
    inner: Any = getattr(model, "_fsdp_wrapped_module", model)
    inner.seen = run.multipliers
    optimizer = make_optimizer(model, setting, run)
    schedule, made = make_schedule(optimizer), ShardedGradScaler("cpu")
    if state is not None:
        weights, states = get_state_dict(model, optimizer)
        saved = {"model": weights, "optimizer": states}
        dcp.load(saved, checkpoint_id=state[0])
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        made.load_state_dict(state[1])
        schedule.load_state_dict(state[2])
    for step in range(first, last):
        optimizer.zero_grad()
        data = batch(step, setting.overflow)
        loss = model(data["x"].half(), data["y"], data["factor"])["loss"]
        made.scale(loss).backward()
        made.step(optimizer, max_norm=setting.max_norm)
        made.update()
        if made.report(optimizer).applied:
            schedule.step()
        run.note(model, made.report(optimizer), optimizer)
    weights, states = get_state_dict(model, optimizer)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder[0])
    run.state = (folder[0], copy.deepcopy(made.state_dict()), copy.deepcopy(schedule.state_dict()))
    return run


def deepspeed(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """DeepSpeed's engine with the fp16 section and ZeRO 1, read by the reader."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    from mixprec.integrations.deepspeed import LossScaleReader

    get_accelerator().is_fp16_supported = lambda: True  # it asks for AVX512-FP16; slower without it, not wrong
    run, model = Run(), Net()
    optimizer = make_optimizer(model, replace(setting, monitored=False), run)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": setting.max_norm or 0.0,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "fp16": {"enabled": True, "initial_scale_power": 16, "hysteresis": 1, "loss_scale_window": 2000},
    }
    engine = deepspeed.initialize(
        model=model, optimizer=optimizer, lr_scheduler=make_schedule(optimizer), config=config
    )[0]
    engine.module.seen = run.multipliers
    if state is not None:
        engine.load_checkpoint(state)
    folder = Path(tempfile.mkdtemp())
    reader = LossScaleReader(engine, folder=folder)
    for step in range(first, last):
        data = batch(step, setting.overflow)
        loss = engine(data["x"].half(), data["y"], data["factor"])["loss"]
        engine.backward(loss)
        engine.step()
        run.note(engine.module, reader.read(loss), engine.optimizer)
    reader.close()
    run.watched = [(record.step, record.reason, record.scale) for record in read_run(folder).steps]
    run.findings = [finding.code for finding in reader.findings]
    saved = [tempfile.mkdtemp()]
    dist.broadcast_object_list(saved)
    engine.save_checkpoint(saved[0])
    run.state = saved[0]
    return run


def bitsandbytes(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The front door over an optimizer of bitsandbytes."""

    def make(model: nn.Module, setting: Setting, run: Run) -> torch.optim.Optimizer:
        from bitsandbytes.optim import AdamW8bit

        return _watched(AdamW8bit(model.parameters(), RATE), model, setting, run)

    return precision(first, last, setting, state, make)


def torchao(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """The front door over an optimizer of torchao, run without the compiler that it asks for by itself."""

    def make(model: nn.Module, setting: Setting, run: Run) -> torch.optim.Optimizer:
        from torchao.optim import AdamW8bit

        return _watched(AdamW8bit(model.parameters(), RATE), model, setting, run)

    with torch.compiler.set_stance("force_eager"):
        return precision(first, last, setting, state, make)


def accelerate(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """Accelerate's accelerator, prepared model, optimizer and schedule."""
    from accelerate.state import AcceleratorState, PartialState

    from mixprec.integrations.accelerate import MixprecAccelerator

    AcceleratorState._reset_state()
    PartialState._reset_state()
    run, model = Run(), Net()
    model.seen = run.multipliers
    optimizer = make_optimizer(model, setting, run)
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
    optimizer = make_optimizer(model, setting, run)
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
    from mixprec.integrations.lightning import MixprecPrecision

    return _by_a_trainer(MixprecPrecision("fp16-mixed", "cpu"), last=last, setting=setting, state=state)


def lightning_fsdp(first: int, last: int, setting: Setting, state: Any = None) -> Run:
    """Lightning's Trainer under FSDP. Lightning refuses a CPU where the strategy is exactly its own class, and does not
    hand FSDP the device, without which PyTorch refuses one.
    """
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import FSDPStrategy
    from torch.distributed.fsdp import FullyShardedDataParallel

    from mixprec.integrations.lightning import MixprecFSDPPrecision

    class OnCpu(FSDPStrategy):
        def _setup_model(self, model: nn.Module) -> nn.Module:
            half, device = self.mixed_precision_config, torch.device("cpu")
            return FullyShardedDataParallel(model, device_id=device, mixed_precision=half, use_orig_params=True)

    plugins = [MixprecFSDPPrecision("fp16-mixed", "cpu"), LightningEnvironment()]
    return _by_a_trainer(*plugins, last=last, setting=setting, state=state, strategy=OnCpu(state_dict_type="sharded"))


def _by_a_trainer(plugin: Any, *others: Any, last: int, setting: Setting, state: Any, strategy: Any = "auto") -> Run:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback

    run = Run()

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
            optimizer = make_optimizer(self.net, setting, run)
            return [optimizer], [{"scheduler": make_schedule(optimizer), "interval": "step"}]

        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            if plugin.report.applied:
                scheduler.step()

    class Noting(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            run.note(trainer.strategy.model, plugin.report, trainer.optimizers[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's hints, and what it uses that pytree deprecates
        trainer = Trainer(
            accelerator="cpu",
            devices=dist.get_world_size() if others else 1,
            strategy=strategy,
            use_distributed_sampler=False,
            max_epochs=last,
            plugins=[plugin, *others],
            gradient_clip_val=setting.max_norm,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            reload_dataloaders_every_n_epochs=1,
            callbacks=[Noting()],
        )
        trainer.fit(Module(), ckpt_path=state, weights_only=False)
        folder = [tempfile.mkdtemp()]
        if dist.is_initialized():
            dist.broadcast_object_list(folder)
        run.state = str(Path(folder[0]) / "last.ckpt")
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
    optimizer = make_optimizer(model, setting, run)
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


STACKS: dict[str, tuple[str | None, Driver, int]] = {
    "scaler": (None, scaler, 1),
    "precision": (None, precision, 1),
    "compile": (None, compiled, 1),
    "ddp": (None, ddp, 2),
    "fsdp1": (None, fsdp1, 2),
    "fsdp2": (None, fsdp2, 2),
    "accelerate": ("accelerate", accelerate, 1),
    "fabric": ("lightning", fabric, 1),
    "lightning": ("lightning", lightning, 1),
    "lightning_fsdp": ("lightning", lightning_fsdp, 2),
    "transformers": ("transformers", transformers, 1),
    "deepspeed": ("deepspeed", deepspeed, 2),
    "bitsandbytes": ("bitsandbytes", bitsandbytes, 1),
    "torchao": ("torchao", torchao, 1),
}
"""Stack to the package that it needs, its driver, and how many ranks run it."""


@dataclass(frozen=True)
class Scenario:
    """Steps `first` to `last` of a training; `after` names the scenario that it goes on from."""

    first: int
    last: int
    setting: Setting
    after: str | None = None


_TWICE = Setting(overflow=(1, 4), adam=True)

SCENARIOS = {
    "skipping": Scenario(0, 4, Setting(overflow=(1,))),
    "whole": Scenario(0, 6, _TWICE),
    "stopped": Scenario(0, 3, _TWICE),
    "resumed": Scenario(3, 6, _TWICE, after="stopped"),
    "clipped": Scenario(0, 3, Setting(max_norm=0.02)),
    "faulty": Scenario(0, 4, Setting(overflow=(1, 2), monitored=True)),
    "healthy": Scenario(0, 4, Setting(monitored=True)),
}


class Runs:
    """The scenarios of one stack, each run once."""

    def __init__(self, stack: str) -> None:
        self._driver = STACKS[stack][1]
        self._ran: dict[tuple[str, bool], Run] = {}

    def __call__(self, name: str, fused: bool = False) -> Run:
        """What `name` came to, with a fused optimizer or another."""
        if (name, fused) not in self._ran:
            scenario = SCENARIOS[name]
            state = None if scenario.after is None else self(scenario.after, fused).state
            setting = replace(scenario.setting, fused=fused)
            self._ran[name, fused] = self._driver(scenario.first, scenario.last, setting, state).finish()
        return self._ran[name, fused]

    def all(self) -> dict[tuple[str, bool], Run]:
        """Every scenario, saved as it is."""
        for name in SCENARIOS:
            for fused in (False, True):
                self(name, fused)
        return self._ran


NOT_FUSED = ("bitsandbytes", "torchao")
"""Stacks whose optimizers have no fused form."""
