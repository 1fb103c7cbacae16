"""One rank of the contract among ranks: `ranks_program.py RANK WORLD FOLDER` saves what it found.

All ranks see parts of one batch of 8 samples per step, so that what they do equals one process on the whole batch, and
results at different world sizes can be compared. In step 2 the samples of the last rank alone overflow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.update(
    RANK=sys.argv[1],
    LOCAL_RANK=sys.argv[1],
    WORLD_SIZE=sys.argv[2],
    LOCAL_WORLD_SIZE=sys.argv[2],
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT="29500",
)

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from mixprec import Precision, ShardedGradScaler
from mixprec.errors import InvalidValueError

RANK, WORLD, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
OVERFLOW = 2
STEPS = 5
MAX_NORM = 0.02


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def part(step: int, rank: int = RANK, world: int = WORLD) -> tuple[Tensor, Tensor, float]:
    """This rank's samples, and what its loss is multiplied by."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 8, generator=generator)
    chosen = slice(8 // world * rank, 8 // world * (rank + 1))
    y = 0.5 * x[:, :4]
    return x[chosen], y[chosen], float("inf") if step == OVERFLOW and rank == world - 1 else 1.0


def loss_of(model: nn.Module, step: int, half: int | None = None) -> Tensor:
    x, y, factor = part(step)
    if half is not None:
        x, y = x.chunk(2)[half], y.chunk(2)[half]
    return 0.25 * F.mse_loss(model(x).float(), y) * factor


def whole(model: nn.Module) -> list[Tensor]:
    """Every parameter in full, under names that do not depend on the wrapper."""
    if isinstance(model, FSDP):
        with FSDP.summon_full_params(model):
            return [p.detach().clone() for p in model.parameters()]
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone() for p in model.parameters()]


class Found(list):
    """Per step: parameters, whether the step was applied, the scale after it."""

    def note(self, model: nn.Module, report: Any) -> None:
        self.append((whole(model), report.applied, report.scale_after))


def front_door(model: nn.Module, first: int = 0, last: int = STEPS, accumulate: int = 1, mode: str = "fp16-mixed"):
    """Training by `Precision`; the steps, and what resumes."""
    found = Found()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    door = Precision(mode, optimizer, model=model, max_norm=MAX_NORM, accumulate=accumulate)

    def run(begin: int, end: int) -> None:
        for step in range(begin, end):
            for micro in range(accumulate):
                with door.no_sync(), door.autocast():
                    loss = loss_of(model, step, None if accumulate == 1 else micro)
                    door.backward(loss)
                report = door.step()
            found.note(model, report)

    run(first, last)
    return found, optimizer, door, run


def ddp() -> Found:
    return front_door(DistributedDataParallel(network()))[0]


def ddp_accumulating() -> Found:
    return front_door(DistributedDataParallel(network()), accumulate=2)[0]


def ddp_bf16() -> Found:
    return front_door(DistributedDataParallel(network()), mode="bf16-mixed")[0]


def fsdp2() -> Found:
    model = network()
    for module in (*model, model):
        if any(True for _ in module.parameters()):
            fully_shard(module, mesh=init_device_mesh("cpu", (WORLD,)))
    return front_door(model)[0]


def fsdp2_policy() -> Found:
    """FSDP2's own policy casts parameters to the mode's dtype, and the mode finds them so."""
    model = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)), mp_policy=policy)
    return front_door(model)[0]


def fighting() -> list[str]:
    """FSDP casts parameters to float16 and the mode computes in bfloat16, in float32, and in float16."""
    model = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.float16)
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)), mp_policy=policy)
    older = FSDP(network(), device_id=torch.device("cpu"), mixed_precision=MixedPrecision(param_dtype=torch.float16))
    said = []
    for each in (model, older):
        for mode in ("bf16-mixed", "fp32", "fp16-mixed"):
            try:
                Precision(mode, torch.optim.SGD(each.parameters(), 0.1), model=each)
                said.append("")
            except InvalidValueError as error:
                said.append(str(error))
    return said


def fsdp1() -> Found:
    found = Found()
    precision = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32)
    model = FSDP(network(), device_id=torch.device("cpu"), mixed_precision=precision, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scaler = ShardedGradScaler("cpu")
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        scaler.step(optimizer, max_norm=MAX_NORM)
        scaler.update()
        found.note(model, scaler.report(optimizer))
    return found


def accelerate() -> Found:
    from mixprec.integrations.accelerate import MixprecAccelerator

    found, model = Found(), network()
    accelerator = MixprecAccelerator(mixed_precision="fp16", cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.01))
    for step in range(STEPS):
        accelerator.backward(loss_of(model, step))
        accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        found.note(model, accelerator.report(optimizer))
    return found


def fabric() -> Found:
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments import LightningEnvironment

    from mixprec.integrations.lightning import MixprecFabricPrecision

    found, model = Found(), network()
    plugin = MixprecFabricPrecision("fp16-mixed", "cpu", max_norm=MAX_NORM)
    made = Fabric(accelerator="cpu", strategy="ddp", devices=WORLD, plugins=[plugin, LightningEnvironment()])
    made.launch()
    wrapped, optimizer = made.setup(model, torch.optim.AdamW(model.parameters(), 0.01))
    for step in range(STEPS):
        made.backward(loss_of(wrapped, step))
        optimizer.step()
        optimizer.zero_grad()
        found.note(model, plugin.report)
    return found


def one_process() -> Found:
    """What all of them are compared with: this process alone, on the whole batch, in float32 with torch's clipping."""
    found, model = Found(), network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for step in range(STEPS):
        if step == OVERFLOW:
            found.append((whole(model), False, None))
            continue
        optimizer.zero_grad()
        x, y, _ = part(step, 0, 1)
        (0.25 * F.mse_loss(model(x), y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        found.append((whole(model), True, None))
    return found


def sharded() -> nn.Module:
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
    return model


def saving() -> Found:
    """Three steps, one of them skipped, saved through torch.distributed.checkpoint, and two more."""
    model = sharded()
    found, optimizer, door, run = front_door(model, 0, 3)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state, "precision": door.state_dict()}, checkpoint_id=FOLDER / "saved")
    run(3, STEPS)
    return found


def resuming() -> Found:
    """The last two steps, from what another world saved."""
    model = sharded()
    found, optimizer, door, run = front_door(model, 0, 0)
    weights, state = get_state_dict(model, optimizer)
    loaded = {"model": weights, "optimizer": state, "precision": door.state_dict()}
    dcp.load(loaded, checkpoint_id=FOLDER.parent / "saving" / "saved")
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    door.load_state_dict(loaded["precision"])
    run(3, STEPS)
    return found


CASES: dict[str, Callable[[], list[Any]]] = {
    each.__name__: each
    for each in (
        ddp,
        ddp_accumulating,
        ddp_bf16,
        fighting,
        fsdp1,
        fsdp2,
        fsdp2_policy,
        accelerate,
        fabric,
        saving,
        resuming,
    )
}


def main() -> None:
    store = f"file://{FOLDER / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=RANK, world_size=WORLD, timeout=timedelta(seconds=120))
    found: dict[str, Any] = {"one_process": list(one_process())}
    for name in sys.argv[4:]:
        try:
            found[name] = list(CASES[name]())
        except ImportError as error:  # an optional stack that is not installed
            found[name] = str(error)
    torch.save(found, FOLDER / f"{RANK}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
