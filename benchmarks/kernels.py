"""Are the kernels that nobody gets without asking faster than PyTorch's, on this machine?

    python -m benchmarks.kernels                  # CPU: masters a piece at a time
    python -m benchmarks.kernels --device cuda    # Triton: read, multiply, the phase, masters

No CUDA numbers exist yet: the Triton kernels were compiled for GPUs and run in Triton's interpreter, never on a device.
They become a default only for rows in which this shows them faster; until then `Kernels.FOREACH` is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.harness import CONTENDER, MEDIAN, MINIMUM, QUARTILES, RATIO, Answer, Bench, Column, Contender, Table
from benchmarks.optimizer_phase import LARGE, MANY, MAX_NORM, MLP, Given, Phase, Size, gradients, masters_by_hand, ready
from benchmarks.render import for_terminal
from mixprec import GradScaler, Precision
from mixprec._gradients import Gradients, WaitlessReader, multiply_
from mixprec._kernels import Kernels

HUGE = Size("huge", "12 tensors, 0.8 G parameters", ((8192, 8192),) * 12)
DTYPES = (torch.float32, torch.bfloat16)
COLUMNS = (
    CONTENDER,
    Column("bytes", "least B/param", "{:.0f}"),
    MEDIAN,
    MINIMUM,
    Column("efficiency", "efficiency", "{:.0%}"),
    RATIO,
    QUARTILES,
)


@dataclass(frozen=True)
class Question:
    """Contenders that do the same; the first is the reference. `least` bytes per parameter have to be moved."""

    title: str
    size: Size
    least: int
    contenders: Sequence[Contender]


def run(bench: Bench, bandwidth: float) -> Answer:
    """Every question that the device has contenders for."""
    return Answer(tables=list(tables(bench, bandwidth)))


def tables(bench: Bench, bandwidth: float) -> Iterator[Table]:
    """One after the other, since a device may not be there for long."""
    for question in on_cuda(bench.device) if bench.device == "cuda" else on_cpu():
        yield table(bench, question, bandwidth)


def table(bench: Bench, question: Question, bandwidth: float) -> Table:
    race = bench.race(question.contenders, seconds=10.0)
    best = question.least * question.size.count / bandwidth
    rows = [
        race.row(each.name, question.contenders[0].name)
        | {"bytes": question.least, "efficiency": best / race.median(each.name)}
        for each in question.contenders
    ]
    name = f"kernels_{question.title}_{question.size.name}".replace(" ", "_")
    return Table(name, f"{question.title}: {question.size.title}", COLUMNS, rows)


def on_cpu() -> Iterator[Question]:
    for size in (LARGE, MANY, MLP):
        each = [masters("cpu", size, Kernels.FOREACH), masters("cpu", size, Kernels.PIECES)]
        yield Question("fp16 masters with clipping", size, 30, [*each, masters_by_hand(size, "cpu").contender])


def on_cuda(device: str) -> Iterator[Question]:
    from mixprec._kernels._triton import _multiply, _read  # needs an extra

    reference = WaitlessReader()
    scale, factor = torch.tensor(2.0**16, device=device), torch.tensor(0.5, device=device)
    flag = torch.zeros((), device=device)
    for size in (HUGE, LARGE, MANY):
        for dtype in DTYPES:
            tensors, width = gradients(size, device, dtype, 1.0), dtype.itemsize
            reads = {
                "foreach": reading(reference, tensors, scale),
                "triton": lambda t=tensors: _read.read(t, None, scale, MAX_NORM),
            }
            yield Question(f"read {dtype}", size, width, named(reads))
            products = {
                "foreach": lambda t=tensors: multiply_(Gradients(t), factor, flag),
                "triton": lambda t=tensors: _multiply.multiply_(t, factor, flag),
            }
            yield Question(f"multiply {dtype}", size, 2 * width, named(products))
    for size in (LARGE, MANY, MLP):
        for kind, least in (({"fused": True}, 32), ({"foreach": True}, 40)):
            each = [phase(device, size, kernels, **kind) for kernels in (Kernels.FOREACH, Kernels.TRITON)]
            yield Question(f"phase with clipping, AdamW {kind}", size, least, each)
        each = [masters(device, size, kernels) for kernels in (Kernels.FOREACH, Kernels.TRITON)]
        yield Question("fp16 masters with clipping", size, 30, [*each, masters_by_hand(size, device).contender])


def named(calls: dict[str, Callable[[], object]]) -> list[Contender]:
    return [Contender(name, call) for name, call in calls.items()]


def reading(reader: WaitlessReader, tensors: list[Tensor], scale: Tensor) -> Callable[[], object]:
    """A read, and the arithmetic that Triton's does in its last launch."""

    def call() -> object:
        found = reader.read(Gradients(tensors), scale, scale.device)
        clipping = reader.clipping(found, scale, MAX_NORM)
        return found, clipping, reader.divisor(scale, clipping.coefficient)

    return call


def phase(device: str, size: Size, kernels: Kernels, **kind: bool) -> Contender:
    """Unscale, clip, step, update."""
    work, scaler = Phase(size, device, **kind), ready(GradScaler(device, kernels=kernels), device)

    def call() -> None:
        scaler.step(work.optimizer, max_norm=MAX_NORM)
        scaler.update()

    return Contender(kernels.value, call, work.restore)


def masters(device: str, size: Size, kernels: Kernels) -> Contender:
    """The step of a front door on float16 gradients."""
    work, given = Phase(size, device, fused=True), gradients(size, device, torch.float16, 2.0**10)
    precision = Precision("fp16-master", work.optimizer, model=work.model, max_norm=MAX_NORM, kernels=kernels)

    def prepare() -> None:
        if precision.accumulating:
            precision.step()
        precision.backward(Given.apply(given, *work.model.parameters()))

    return Contender(kernels.value, precision.step, prepare)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--share", type=float, default=1.0, help="of 10 seconds per question")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a CUDA device, and torch sees none here")
    bench, console = Bench(options.device, share=options.share), Console(width=None if Console().is_terminal else 160)
    for found in tables(bench, max(bench.bandwidth().values())):
        console.print(for_terminal(asdict(found)))


if __name__ == "__main__":
    main()
