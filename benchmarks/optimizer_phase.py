"""How long is everything between backward and the next forward: unscale, clip, step or skip, move the scale?

Torch's phase is written as its documentation writes it. Gradients are put back before every call, untimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.harness import (
    CONTENDER,
    MEDIAN,
    MINIMUM,
    QUARTILES,
    RATIO,
    Answer,
    Bench,
    Column,
    Contender,
    Race,
    Table,
    Target,
)
from benchmarks.traffic import bytes_moved
from mixprec import GradScaler, Precision

MAX_NORM = 1.0
LEAST_BYTES = 32
"""Per float32 parameter. A step that may be skipped or clipped reads all gradients before it writes anything (4); then
gradients, weights and both moments are read (16), weights and moments written (12)."""
LEAST_BYTES_MASTERS = 30
"""The same with 16-bit gradients and weights: gradients 2 and 2, master and moments 12 and 12, weights 2."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "fused AdamW": {"fused": True},
    "foreach AdamW": {"foreach": True},
    "default AdamW": {},
}

COLUMNS = (
    CONTENDER,
    Column("bytes", "B/param", "{:.0f}"),
    MEDIAN,
    MINIMUM,
    Column("efficiency", "efficiency", "{:.0%}"),
    Column("peer", "against"),
    RATIO,
    QUARTILES,
)


@dataclass(frozen=True)
class Size:
    """A list of parameter shapes."""

    name: str
    title: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Parameters."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)


def _block(width: int) -> tuple[tuple[int, ...], ...]:
    """The parameters of one transformer block: 12 tensors."""
    linear = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
    return (*((width,),) * 4, *linear, *((shape[0],) for shape in linear))


LARGE = Size("large", "36 tensors, 21.3 M parameters", _block(768) * 3)
MANY = Size("many", "1,200 small tensors, 0.6 M parameters", ((32, 32), (32,)) * 600)
MLP = Size("mlp", "6 tensors of an MLP, 26 k parameters", ((128, 64), (128,), (128, 128), (128,), (10, 128), (10,)))


class Phase:
    """Parameters with an optimizer, and scaled gradients that `restore` puts back."""

    def __init__(self, size: Size, device: str, **kind: Any) -> None:
        generator = torch.Generator().manual_seed(0)
        self.model = nn.ParameterList(torch.randn(shape, generator=generator) * 0.02 for shape in size.shapes).to(
            device
        )
        self.params = list(self.model.parameters())
        self.gradients = gradients(size, device, torch.float32, 2.0**16)
        for param, gradient in zip(self.params, self.gradients, strict=True):
            param.grad = gradient.clone()
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-4, **kind)

    def restore(self) -> None:
        """The gradients as backward would have left them."""
        torch._foreach_copy_(_grads(self.params), self.gradients)


def _grads(params: Sequence[Tensor]) -> list[Tensor]:
    return [param.grad for param in params if param.grad is not None]


def gradients(size: Size, device: str, dtype: torch.dtype, scale: float) -> list[Tensor]:
    """Normal numbers whose norm is about 4, so that they are clipped, times `scale`."""
    generator = torch.Generator().manual_seed(1)
    factor = 4.0 * size.count**-0.5 * scale
    return [(torch.randn(shape, generator=generator) * factor).to(device, dtype) for shape in size.shapes]


def ready(scaler: torch.amp.GradScaler, device: str) -> Any:
    """`scaler`, which has made its tensors."""
    scaler.scale(torch.zeros((), device=device))
    return scaler


def torch_phase(phase: Phase, device: str, max_norm: float | None) -> Callable[[], None]:
    """As https://docs.pytorch.org/docs/stable/notes/amp_examples.html writes it."""
    scaler, optimizer, params = ready(torch.amp.GradScaler(device), device), phase.optimizer, phase.params

    def call() -> None:
        if max_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(params, max_norm)
        scaler.step(optimizer)
        scaler.update()

    return call


def our_phase(phase: Phase, device: str, max_norm: float | None) -> Callable[[], None]:
    scaler, optimizer = ready(GradScaler(device), device), phase.optimizer

    def call() -> None:
        scaler.step(optimizer, max_norm=max_norm)
        scaler.update()

    return call


@dataclass(frozen=True)
class Entry:
    """A contender, whom it is compared with, and the weights that it steps."""

    contender: Contender
    against: str
    weights: Sequence[Tensor]


def run(bench: Bench, bandwidth: float) -> Answer:
    """Every size, with and without clipping, and float16 weights with masters."""
    answer = Answer()
    for size, seconds in ((LARGE, 30.0), (MANY, 15.0), (MLP, 10.0)):
        race, table = _float32(bench, size, MAX_NORM, bandwidth, seconds)
        answer.targets.extend(_targets(size, race))
        answer.tables += [table, _float32(bench, size, None, bandwidth, seconds)[1]]
    answer.tables.append(_masters(bench, LARGE, bandwidth, 15.0))
    return answer


def _targets(size: Size, race: Race) -> Iterator[Target]:
    for kind, wanted in (("fused", 1.3), ("default", 4.0)):
        ratio = race.ratio("mixprec, fused AdamW", f"torch.amp, {kind} AdamW")
        yield Target(f"whole phase, {size.name}: times as fast as torch.amp, clip, {kind}", wanted, ratio.median)


def _float32(bench: Bench, size: Size, max_norm: float | None, bandwidth: float, seconds: float) -> tuple[Race, Table]:
    entries = float32_entries(size, bench.device, max_norm)
    race = bench.race([entry.contender for entry in entries], seconds=seconds)
    rows = _rows(race, entries, size, LEAST_BYTES, bandwidth)
    clipped = "with" if max_norm is not None else "without"
    title = f"Optimizer phase: {size.title}, {clipped} clipping"
    return race, Table(f"optimizer_{size.name}_{clipped}_clipping", title, COLUMNS, rows)


def float32_entries(size: Size, device: str, max_norm: float | None) -> list[Entry]:
    """torch.amp and mixprec with every kind of AdamW, and the installed peers with two."""
    entries = []
    for kind, arguments in KINDS.items():
        for who, make in (("torch.amp", torch_phase), ("mixprec", our_phase)):
            phase = Phase(size, device, **arguments)
            contender = Contender(f"{who}, {kind}", make(phase, device, max_norm), phase.restore)
            entries.append(Entry(contender, f"torch.amp, {kind}", phase.params))
    for kind in ("fused AdamW", "default AdamW"):
        for who, make_peer in peers.INSTALLED.items():
            if who == "Fabric" and max_norm is not None and kind == "fused AdamW":
                continue  # it refuses to
            phase, scaler = Phase(size, device, **KINDS[kind]), ready(torch.amp.GradScaler(device), device)
            call = make_peer(phase.model, phase.optimizer, scaler, max_norm)
            entries.append(Entry(Contender(f"{who}, {kind}", call, phase.restore), f"torch.amp, {kind}", phase.params))
    return entries


def _rows(race: Race, entries: Sequence[Entry], size: Size, least: int, bandwidth: float) -> list[dict[str, Any]]:
    return [_row(race, entry, size, least, bandwidth) for entry in entries]


def _row(race: Race, entry: Entry, size: Size, least: int, bandwidth: float) -> dict[str, Any]:
    name = entry.contender.name
    entry.contender.prepare()
    moved = bytes_moved(entry.contender.call) / size.count
    efficiency = least * size.count / race.median(name) / bandwidth
    return race.row(name, entry.against) | {"bytes": moved, "efficiency": efficiency}


# Float16 weights with float32 masters --------------------------------------------------------------------------------


class Given(torch.autograd.Function):
    """A loss whose gradients are given, whatever they are multiplied by."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return torch.zeros((), device=weights[0].device)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Any, ...]:
        return None, *(gradient.clone() for gradient in ctx.gradients)


MASTERS_PEER = "torch.amp and masters by hand, fused AdamW"


def masters_by_hand(size: Size, device: str) -> Entry:
    """The copies and torch.amp's phase between them, foreach where torch has it."""
    phase = Phase(size, device, fused=True)
    halves = [nn.Parameter(param.detach().half()) for param in phase.params]
    given = gradients(size, device, torch.float16, 2.0**10)
    step = torch_phase(phase, device, MAX_NORM)

    def prepare() -> None:
        for half, gradient in zip(halves, given, strict=True):
            half.grad = gradient.clone()

    @torch.no_grad()
    def call() -> None:
        torch._foreach_copy_(_grads(phase.params), _grads(halves))
        step()
        torch._foreach_copy_(tuple(halves), tuple(phase.params))

    return Entry(Contender(MASTERS_PEER, call, prepare), MASTERS_PEER, halves)


def our_masters(size: Size, device: str) -> Entry:
    phase = Phase(size, device, fused=True)
    given = gradients(size, device, torch.float16, 2.0**10)
    precision = Precision("fp16-master", phase.optimizer, model=phase.model, max_norm=MAX_NORM)

    def prepare() -> None:
        if precision.accumulating:
            precision.step()
        precision.backward(Given.apply(given, *phase.model.parameters()))

    contender = Contender("mixprec, Precision(fp16-master), fused AdamW", precision.step, prepare)
    return Entry(contender, MASTERS_PEER, list(phase.model.parameters()))


def _masters(bench: Bench, size: Size, bandwidth: float, seconds: float) -> Table:
    entries = [masters_by_hand(size, bench.device), our_masters(size, bench.device)]
    race = bench.race([entry.contender for entry in entries], seconds=seconds)
    title = f"Optimizer phase: {size.title}, float16 with float32 masters, with clipping"
    rows = _rows(race, entries, size, LEAST_BYTES_MASTERS, bandwidth)
    return Table("optimizer_masters", title, COLUMNS, rows)
