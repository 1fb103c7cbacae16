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

KINDS: Mapping[str, Mapping[str, bool]] = {
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

    def __init__(self, size: Size, device: str, **kind: bool) -> None:
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
        torch._foreach_copy_([param.grad for param in self.params], self.gradients)


def gradients(size: Size, device: str, dtype: torch.dtype, scale: float) -> list[Tensor]:
    """Normal numbers of deviation 1e-3, scaled: their norm is above `MAX_NORM` for all but the smallest sizes."""
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(shape, generator=generator) * (1e-3 * scale)).to(device, dtype) for shape in size.shapes]


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
    """A contender, whom it is compared with, and the number of its parameters' bytes."""

    contender: Contender
    against: str


def run(bench: Bench, bandwidth: float) -> Answer:
    """Every size, with and without clipping, and float16 weights with masters."""
    answer = Answer()
    for size, seconds in ((LARGE, 30.0), (MANY, 15.0), (MLP, 5.0)):
        for max_norm in (MAX_NORM, None):
            race, table = _float32(bench, size, max_norm, bandwidth, seconds)
            answer.tables.append(table)
            if max_norm is not None:
                answer.targets.extend(_targets(size, race))
    answer.tables.append(_masters(bench, LARGE, bandwidth, 15.0))
    return answer


def _targets(size: Size, race: Race) -> list[Target]:
    ours, fused, default = "mixprec, fused AdamW", "torch.amp, fused AdamW", "torch.amp, default AdamW"
    return [
        Target(
            f"whole phase, {size.name}: times as fast as torch.amp, clip, fused", 1.3, race.ratio(ours, fused).median
        ),
        Target(
            f"whole phase, {size.name}: times as fast as torch.amp, clip, default",
            4.0,
            race.ratio(ours, default).median,
        ),
    ]


def _float32(bench: Bench, size: Size, max_norm: float | None, bandwidth: float, seconds: float) -> tuple[Race, Table]:
    entries = []
    for kind, arguments in KINDS.items():
        for who, make in (("torch.amp", torch_phase), ("mixprec", our_phase)):
            phase = Phase(size, bench.device, **arguments)
            contender = Contender(f"{who}, {kind}", make(phase, bench.device, max_norm), phase.restore)
            entries.append(Entry(contender, f"torch.amp, {kind}"))
    entries.extend(_peers(bench, size, max_norm))
    named = "with clipping" if max_norm is not None else "without clipping"
    race = bench.race([entry.contender for entry in entries], seconds=seconds)
    rows = _rows(race, entries, size, LEAST_BYTES, bandwidth)
    return race, Table(
        f"optimizer_{size.name}_{named.replace(' ', '_')}", f"Optimizer phase: {size.title}, {named}", COLUMNS, rows
    )


def _peers(bench: Bench, size: Size, max_norm: float | None) -> Iterator[Entry]:
    for kind in ("fused AdamW", "default AdamW"):
        if "accelerate" in peers.INSTALLED:
            phase, scaler = Phase(size, bench.device, **KINDS[kind]), torch.amp.GradScaler(bench.device)
            call = peers.accelerate_phase(phase.params, phase.optimizer, ready(scaler, bench.device), max_norm)
            yield Entry(Contender(f"Accelerate, {kind}", call, phase.restore), f"torch.amp, {kind}")
        if "lightning" in peers.INSTALLED and (max_norm is None or kind == "default AdamW"):
            phase, scaler = Phase(size, bench.device, **KINDS[kind]), torch.amp.GradScaler(bench.device)
            call = peers.fabric_phase(phase.model, phase.optimizer, ready(scaler, bench.device), max_norm)
            yield Entry(Contender(f"Fabric, {kind}", call, phase.restore), f"torch.amp, {kind}")


def _rows(race: Race, entries: Sequence[Entry], size: Size, least: int, bandwidth: float) -> list[dict[str, Any]]:
    rows = []
    for entry in entries:
        name = entry.contender.name
        entry.contender.prepare()
        rows.append(
            race.row(name, entry.against)
            | {
                "bytes": bytes_moved(entry.contender.call) / size.count,
                "efficiency": least * size.count / race.median(name) / bandwidth,
            }
        )
    return rows


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


def masters_by_hand(size: Size, device: str) -> Contender:
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
        torch._foreach_copy_([param.grad for param in phase.params], [half.grad for half in halves])
        step()
        torch._foreach_copy_(halves, phase.params)

    return Contender("torch.amp and masters by hand, fused AdamW", call, prepare)


def our_masters(size: Size, device: str) -> Contender:
    phase = Phase(size, device, fused=True)
    given = gradients(size, device, torch.float16, 2.0**10)
    precision = Precision("fp16-master", phase.optimizer, model=phase.model, max_norm=MAX_NORM)

    def prepare() -> None:
        if precision.accumulating:
            precision.step()
        precision.backward(Given.apply(given, *phase.model.parameters()))

    return Contender("mixprec, Precision(fp16-master), fused AdamW", precision.step, prepare)


def _masters(bench: Bench, size: Size, bandwidth: float, seconds: float) -> Table:
    by_hand, ours = masters_by_hand(size, bench.device), our_masters(size, bench.device)
    entries = [Entry(by_hand, by_hand.name), Entry(ours, by_hand.name)]
    race = bench.race([entry.contender for entry in entries], seconds=seconds)
    title = f"Optimizer phase: {size.title}, float16 with float32 masters, with clipping"
    rows = _rows(race, entries, size, LEAST_BYTES_MASTERS, bandwidth)
    return Table("optimizer_masters", title, COLUMNS, rows)
