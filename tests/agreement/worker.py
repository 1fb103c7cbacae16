"""What one rank does: `python worker.py PROGRAM RANK WORLD FOLDER` runs scenarios and saves their results."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from mixprec import GradScaler, ShardedGradScaler
from mixprec._agreement import OnDisagreement, Ranks
from mixprec._headroom import HeadroomRules
from mixprec.errors import DisagreementError

HEADROOM = HeadroomRules(init_scale=64.0, growth_interval=3)
KINDS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1),
    "fused_adamw": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "fused_sgd_momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
}


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def give_gradients(params: list[Any], step: int, poison: bool) -> None:
    """The same scaled gradients on every rank, but for an infinity on this one if it is poisoned."""
    generator = torch.Generator().manual_seed(step)
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator) * 64.0
    if poison:
        params[0].grad.view(-1)[0] = float("inf")


def scaler_of(kind: type[GradScaler] = GradScaler, **arguments: Any) -> GradScaler:
    moving = {} if "rules" in arguments else {"init_scale": 64.0, "growth_interval": 3}
    scaler = kind("cpu", guards=(), **moving, **arguments)
    scaler.scale(torch.zeros(()))
    return scaler


def summary(scaler: GradScaler, optimizer: torch.optim.Optimizer, params: list[Any]) -> dict[str, Any]:
    report = scaler.report(optimizer)
    local = [p.to_local() if hasattr(p, "to_local") else p for p in params]
    return {
        "scale": scaler.get_scale(),
        "applied": report.applied,
        "norm": report.grad_norm,
        "coefficient": report.clip_coefficient,
        "params": [p.detach().clone() for p in local],
    }


def train(
    rank: int, kind: str, steps: int, poisoned: Callable[[int], int], max_norm: float | None = None, **arguments: Any
) -> list[dict[str, Any]]:
    """`steps` steps on replicated plain parameters; `poisoned(step)` is the rank with an infinity, -1 for none."""
    params = list(network().parameters())
    optimizer, scaler = KINDS[kind](params), scaler_of(**arguments)
    seen = []
    for step in range(steps):
        give_gradients(params, step, poisoned(step) == rank)
        scaler.step(optimizer, max_norm=max_norm)
        scaler.update()
        seen.append(summary(scaler, optimizer, params))
    return seen


def collectives(rank: int, world: int) -> Any:
    """Collectives per step: fused and clipped, plain, two optimizers together; with plain parameters and on a mesh."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    calls = 0
    originals = dist.all_reduce, dist.all_gather

    def counting(original: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return original(*args, **kwargs)

        return counted

    def steps(make_params: Callable[[], list[Any]], **arguments: Any) -> list[int]:
        nonlocal calls
        seen = []
        for kinds in (["fused_adamw"], ["sgd"], ["fused_adamw", "sgd"]):
            groups = [make_params() for _ in kinds]
            optimizers, scaler = [KINDS[k](g) for k, g in zip(kinds, groups, strict=True)], scaler_of(**arguments)
            calls = 0
            for param in (param for group in groups for param in group):
                param.grad = param.detach().clone()
            scaler.step_together(optimizers, max_norm=None if kinds == ["sgd"] else 1.0)
            scaler.update()
            seen.append(calls)
        return seen

    dist.all_reduce, dist.all_gather = map(counting, originals)
    try:
        plain = steps(lambda: [nn.Parameter(torch.ones(4))], process_group="world")
        headroom = steps(lambda: [nn.Parameter(torch.ones(4))], process_group="world", rules=HEADROOM)
        mesh = init_device_mesh("cpu", (world // 2, 2) if world > 2 else (world,))
        placements = [Shard(0)] * mesh.ndim
        dtensor = steps(lambda: [nn.Parameter(DTensor.from_local(torch.ones(4), mesh, placements))])
        nobody = steps(lambda: [nn.Parameter(torch.ones(4))])
    finally:
        dist.all_reduce, dist.all_gather = originals
    return {"plain": plain, "headroom": headroom, "dtensor": dtensor, "nobody": nobody}


# Two ranks -----------------------------------------------------------------------------------------------------------


def planted(rank: int, world: int) -> Any:
    """An infinity on the last rank at steps 0 and 3."""
    last = world - 1
    at = lambda step: last if step in (0, 3) else -1  # noqa: E731 # a one-line rule
    return {
        (kind, norm): train(rank, kind, 5, at, norm, process_group="world") for kind in KINDS for norm in (None, 1.0)
    }


def alone(rank: int, world: int) -> Any:
    """The same without agreement: what there is to beat."""
    return train(rank, "fused_adamw", 2, lambda step: world - 1 if step == 0 else -1)


def random_overflows(rank: int, world: int) -> Any:
    """200 steps, an infinity on a random rank in one of four."""
    generator = torch.Generator().manual_seed(11)
    plan = torch.randint(0, 4 * world, (200,), generator=generator).tolist()
    seen = train(rank, "fused_adamw", 200, lambda step: plan[step], 1.0, process_group="world")
    applied = [one["applied"] for one in seen]
    return {"last": seen[-1], "applied": applied, "expected": [planned >= world for planned in plan]}


def no_gradients(rank: int, world: int) -> Any:
    """Rank 1 never has a gradient; rank 0 overflows at step 1."""
    results = {}
    for kind in KINDS:
        params = list(network(rank).parameters())
        optimizer, scaler = KINDS[kind](params), scaler_of(process_group="world")
        seen = []
        for step in range(3):
            if rank == 0:
                give_gradients(params, step, poison=step == 1)
            scaler.unscale_(optimizer) if step == 2 else None
            scaler.step(optimizer)
            scaler.update()
            seen.append(summary(scaler, optimizer, params))
        results[kind] = seen
    return results


def norms(rank: int, world: int) -> Any:
    """Norms of replicated parameters, and of disjoint shards of the same parameters."""
    everything = list(network().parameters())
    give_gradients(everything, 0, poison=False)
    whole = math.sqrt(sum(p.grad.double().square().sum().item() for p in everything)) / 64.0
    results: dict[str, Any] = {"whole": whole}
    replicated = KINDS["fused_adamw"](everything)
    scaler = scaler_of(process_group=dist.group.WORLD)
    scaler.step(replicated, max_norm=0.5)
    results["replicated"] = summary(scaler, replicated, everything)
    sharded = [p for i, p in enumerate(network().parameters()) if i % world == rank]
    for param, full in zip(sharded, [p for i, p in enumerate(everything) if i % world == rank], strict=True):
        give_gradients([param], 0, poison=False)
        generator = torch.Generator().manual_seed(0)
        grads = [torch.randn(p.shape, generator=generator) * 64.0 for p in everything]
        param.grad = next(g for g, p in zip(grads, everything, strict=True) if p is full)
    optimizer = KINDS["adamw"](sharded)
    scaler = scaler_of(process_group=Ranks(sharded=[dist.group.WORLD]))
    scaler.step(optimizer, max_norm=0.5)
    results["sharded"] = summary(scaler, optimizer, sharded)
    return results


def different_scales(rank: int, world: int) -> Any:
    """Ranks that hold different scales: found, then repaired."""
    params = list(network().parameters())
    optimizer, scaler = KINDS["sgd"](params), scaler_of(process_group="world")
    same = scaler.check_ranks(optimizer)
    scaler.update(64.0 if rank else 16.0)
    scaler._growth_tracker.fill_(rank)  # type: ignore[union-attr] # scale() has made it
    try:
        scaler.check_ranks(optimizer)
        error = None
    except DisagreementError as caught:
        error = (str(caught), caught.values)
    repaired = scaler.check_ranks(optimizer, OnDisagreement.REPAIR)
    return {
        "same": same,
        "error": error,
        "repaired": repaired,
        "after": (scaler.get_scale(), scaler._get_growth_tracker(), scaler.check_ranks(optimizer)),
    }


def ddp(rank: int, world: int) -> Any:
    """DDP carries an infinity to every rank by itself."""
    model = nn.parallel.DistributedDataParallel(network())
    optimizer, scaler = KINDS["fused_adamw"](list(model.parameters())), GradScaler("cpu", init_scale=64.0)
    seen = []
    for step in range(4):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        scaler.scale(loss * (float("inf") if step == 1 and rank == 1 else 1.0)).backward()
        scaler.step(optimizer, max_norm=1.0)
        scaler.update()
        seen.append(summary(scaler, optimizer, list(model.parameters())))
    return seen


def uneven_inputs(rank: int, world: int) -> Any:
    """DDP under Join: rank 1 runs out of batches, then rank 0 overflows; ranks are made equal afterwards."""
    from torch.distributed.algorithms.join import Join

    model = nn.parallel.DistributedDataParallel(network())
    optimizer, scaler = KINDS["sgd"](list(model.parameters())), GradScaler("cpu", init_scale=64.0)
    scaler.scale(torch.zeros(()))
    with Join([model]):
        for step in range(4 if rank == 0 else 2):
            torch.manual_seed(10 * step + rank)
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            scaler.scale(loss * (float("inf") if step == 3 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    before = scaler.get_scale()
    checker = GradScaler("cpu", init_scale=64.0, process_group="world")
    checker.scale(torch.zeros(()))
    checker.load_state_dict(scaler.state_dict())
    repaired = checker.check_ranks(optimizer, OnDisagreement.REPAIR)
    return {"before": before, "repaired": repaired, "after": checker.state_dict()}


def replicated_dtensors(rank: int, world: int) -> Any:
    """DTensors that are replicated, with an infinity on rank 1 only; and plain parameters beside them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh = init_device_mesh("cpu", (world,))
    results = {}
    for kind in ("sgd", "adamw", "fused_adamw", "mixed"):
        torch.manual_seed(0)
        placements = [Replicate()] if kind != "mixed" else [Shard(0)]
        params: list[Any] = [
            nn.Parameter(DTensor.from_local(torch.randn(4, 4), mesh, placements)),
            nn.Parameter(torch.randn(4)),
        ]
        params = params if kind == "mixed" else params[:1]
        optimizer = torch.optim.SGD(params, lr=0.1, foreach=False) if kind == "mixed" else KINDS[kind](params)
        scaler = scaler_of()
        seen = []
        for step in range(3):
            for param in params:
                local = torch.full((4, 4) if param.ndim == 2 else (4,), 64.0)
                if step == 1 and rank == 1:
                    local.view(-1)[0] = float("nan")
                param.grad = DTensor.from_local(local, mesh, placements) if isinstance(param, DTensor) else local
            scaler.step(optimizer, max_norm=math.inf)
            scaler.update()
            seen.append(summary(scaler, optimizer, params))
        results[kind] = seen
    return results


def fsdp1(rank: int, world: int) -> Any:
    """FSDP1 with ShardedGradScaler's place taken by ours, fused, an infinity in rank 0's shard only."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    results = {}
    for original in (False, True):
        model = FSDP(network(), use_orig_params=original, device_id=torch.device("cpu"))
        params = [p for p in model.parameters() if p.numel()]
        optimizer = torch.optim.AdamW(params, lr=0.1, fused=True)
        scaler = ShardedGradScaler("cpu", 64.0, 0.25, 3.0, 2)
        seen = []
        for step in range(3):
            torch.manual_seed(step)
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(4, 8)).square().mean()).backward()
            if step == 1 and rank == 0:
                next(p.grad for p in params if p.grad is not None).view(-1)[0] = float("inf")
            scaler.step(optimizer, max_norm=math.inf)
            scaler.update()
            seen.append(summary(scaler, optimizer, params))
        results[original] = seen
    control = network()
    torch.manual_seed(0)
    control(torch.randn(4, 8)).square().mean().backward()
    results["norm"] = torch.nn.utils.get_total_norm([p.grad for p in control.parameters()]).item()
    return results


def headroom(rank: int, world: int) -> Any:
    """Different gradients on every rank under headroom rules: each rank's own magnitudes, and what its scaler held."""
    generator = torch.Generator().manual_seed(rank)
    results = {}
    for kind, unscale in (("fused_adamw", False), ("sgd", False), ("fused_adamw", True), ("two", False)):
        kinds = ["fused_adamw", "sgd"] if kind == "two" else [kind]
        params = [nn.Parameter(torch.ones(4)) for _ in kinds]
        optimizers = [KINDS[k]([param]) for k, param in zip(kinds, params, strict=True)]
        scaler = GradScaler("cpu", rules=HEADROOM, guards=(), process_group=Ranks(sharded=[dist.group.WORLD]))
        scaler.scale(torch.zeros(()))
        seen = []
        for step in range(40):
            amax = float(2.0 ** torch.randint(4, 14, (), generator=generator).item())
            found = torch.randint(0, 12, (), generator=generator).item() == 0
            for param in params:
                param.grad = torch.tensor([1.0, -amax, 0.5, math.inf if found else 0.0])
            if step % 5 == 3 and rank == 1:  # nothing here: the other ranks decide
                amax, found = 0.0, False
                for param in params:
                    param.grad = None
            for optimizer in optimizers if unscale else ():
                scaler.unscale_(optimizer)
            scaler.step_together(optimizers, max_norm=math.inf)
            scaler.update()
            report = scaler.report(optimizers[0])
            held = (scaler.get_scale(), *scaler._course.numbers())
            seen.append((found, amax, report.found_inf, *held, report.grad_norm))
        same = scaler.check_ranks(optimizers[0])
        scaler._course.take(float(rank))
        scaler.check_ranks(optimizers[0], OnDisagreement.REPAIR)
        results[kind, unscale] = {"seen": seen, "same": same, "repaired": scaler._course.numbers()}
    return results


# Four ranks ----------------------------------------------------------------------------------------------------------


def submesh(rank: int, world: int) -> Any:
    """Tensor parallelism on one dimension of a 2-D mesh, an infinity on rank 3 only: all four skip."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    param: Any = nn.Parameter(DTensor.from_local(torch.randn(4, 4), mesh["tp"], [Shard(0)]))
    optimizer, scaler = KINDS["fused_adamw"]([param]), scaler_of()
    seen = []
    for step in range(3):
        local = torch.full((4, 4), 64.0)
        if step == 1 and rank == 3:
            local[0, 0] = float("inf")
        param.grad = DTensor.from_local(local, mesh["tp"], [Shard(0)])
        scaler.step(optimizer, max_norm=math.inf)
        scaler.update()
        seen.append(summary(scaler, optimizer, [param]))
    return seen


def two_meshes(rank: int, world: int) -> Any:
    """Parameters on two crossing meshes in one optimizer, an infinity in one of them on rank 2 only."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    params: list[Any] = [
        nn.Parameter(DTensor.from_local(torch.ones(2, 2), mesh[name], [Shard(0)])) for name in ("dp", "tp")
    ]
    optimizer, scaler = torch.optim.SGD(params, lr=0.1, foreach=False), scaler_of()
    seen = []
    for step in range(3):
        for place, param in enumerate(params):
            local = torch.full((2, 2), 64.0)
            if step == 1 and rank == 2 and place == 1:
                local[0, 0] = float("inf")
            param.grad = DTensor.from_local(local, param.device_mesh, [Shard(0)])
        scaler.step(optimizer)
        scaler.update()
        seen.append(summary(scaler, optimizer, params))
    return seen


def hsdp(rank: int, world: int) -> Any:
    """FSDP2 on a 2-D mesh (replicate, shard): norm, clipping and parameters as in one process; 200 steps."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, control = network(), network()
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    reference = torch.optim.AdamW(control.parameters(), lr=1e-3, fused=True)
    scaler, theirs = scaler_of(), GradScaler("cpu", init_scale=64.0, growth_interval=3, guards=())
    plan = torch.randint(0, 16, (200,), generator=torch.Generator().manual_seed(5)).tolist()
    seen = []
    for step in range(200):
        torch.manual_seed(step)
        batch = torch.randn(4, 8)
        for net, opt, scale in ((model, optimizer, scaler), (control, reference, theirs)):
            opt.zero_grad()
            scale.scale(net(batch).square().mean()).backward()
        if plan[step] < world:
            next(iter(control.parameters())).grad.view(-1)[0] = float("inf")
            shards = [p.grad.to_local() for p in model.parameters() if p.grad.to_local().numel()]
            if plan[step] == rank:
                shards[0].view(-1)[0] = float("inf")
        scaler.step(optimizer, max_norm=0.1)
        theirs.step(reference, max_norm=0.1)
        scaler.update()
        theirs.update()
        seen.append((scaler.report(optimizer).values, theirs.report(reference).values))
    full = [p.full_tensor().detach() for p in model.parameters()]
    return {"seen": seen, "params": full, "control": [p.detach() for p in control.parameters()]}


def pipeline(rank: int, world: int) -> Any:
    """Two stages, each on two ranks: stages hold different parameters, one has no gradients at step 1."""
    data = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    stages = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    params = [nn.Parameter(torch.full((4,), 1.0 + rank // 2))]
    optimizer = KINDS["fused_adamw"](params)
    scaler = scaler_of(process_group=Ranks(replicated=[data], sharded=[stages]))
    seen = []
    for step in range(3):
        params[0].grad = torch.full((4,), 64.0 * (1 + rank // 2))
        if step == 1 and rank // 2 == 0:
            params[0].grad = None
        if step == 2 and rank == 3:
            params[0].grad[0] = float("inf")  # type: ignore[index] # set above
        scaler.step(optimizer, max_norm=math.inf)
        scaler.update()
        seen.append(summary(scaler, optimizer, params))
    return seen


def killed(rank: int, world: int) -> Any:
    """Rank 1 dies before the second step."""
    params = list(network().parameters())
    optimizer, scaler = KINDS["fused_adamw"](params), scaler_of(process_group="world")
    for step in range(2):
        give_gradients(params, step, poison=False)
        if step == 1 and rank == 1:
            torch.save("gone", Path(sys.argv[4]) / "1.pt")
            os._exit(1)
        try:
            scaler.step(optimizer)
        except RuntimeError as error:
            return str(error)
        scaler.update()
    return None


PROGRAMS: dict[str, list[Callable[[int, int], Any]]] = {
    "two": [
        planted,
        alone,
        random_overflows,
        no_gradients,
        norms,
        different_scales,
        ddp,
        uneven_inputs,
        replicated_dtensors,
        fsdp1,
        headroom,
        collectives,
    ],
    "four": [submesh, two_meshes, hsdp, pipeline, planted, collectives],
    "killed": [killed],
}


def main() -> None:
    program, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    dist.init_process_group(
        "gloo", f"file://{folder / 'rendezvous'}", rank=rank, world_size=world, timeout=timedelta(seconds=180)
    )
    results: dict[str, Any] = {}
    for scenario in PROGRAMS[program]:
        try:
            results[scenario.__name__] = scenario(rank, world)
        except Exception:
            results[scenario.__name__] = {"failed": traceback.format_exc()}
            traceback.print_exc()
            break
    torch.save(results, folder / f"{rank}.pt")
    leave(folder, world)


def leave(folder: Path, world: int) -> None:
    """Exits when all ranks have saved, or a minute later: who leaves early may cut a peer off from its last message."""
    for _ in range(600):
        if all((folder / f"{peer}.pt").exists() for peer in range(world)):
            break
        time.sleep(0.1)
    os._exit(0)  # without PyTorch's farewell, which would wait for peers that may be gone


if __name__ == "__main__":
    main()
