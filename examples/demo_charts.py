"""The curves of the demo's page: the loss, the gradients on the axis of fp16's numbers, and the loss scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
import underflow_task as task
from demo_verdicts import Judged

from mixprec import GradScaler, Precision
from mixprec.formats import FP16
from mixprec.report.comparison import Band, Chart, Series

PROBED_STEP = 100
SEARCH_STEPS, SEARCH_START, SEARCH_INTERVAL = 400, 2.0**30, 40


def loss_chart(runs: Sequence[Judged]) -> Chart:
    curves = tuple(curve(run.name, run.result.losses) for run in runs)
    note = "A curve that ends early ended in a loss that is no number."
    return Chart("Training loss", "step", "loss", curves, log=10, note=note)


def curve(name: str, values: Sequence[float], steps: bool = False) -> Series:
    return Series(name, tuple(range(1, len(values) + 1)), tuple(values), steps)


def gradient_chart(runs: Sequence[Judged], seed: int) -> Chart:
    """Where the gradients of float32 lie on the axis of numbers, and where they lie multiplied by the loss scale."""
    scale = max(max(run.result.scales) for run in runs)
    exponents = gradient_exponents(seed)
    scaled = exponents + math.log2(scale)
    zero, tiny = math.log2(FP16.underflow_threshold), math.log2(FP16.tiny)
    curves = (histogram("float32", exponents), histogram(f"multiplied by {scale:g}", scaled))
    return Chart(
        f"Size of the gradients that backward passes from layer to layer, at step {PROBED_STEP}",
        "magnitude",
        "share of elements",
        curves,
        note=f"{below(exponents, zero):.0%} of the elements lie where fp16 has only zero, and what became zero stays "
        f"zero in all earlier layers. Multiplied by the loss scale, {below(scaled, zero):.1%} lie there.",
        bands=(Band("zero in fp16", min(curves[0].x), zero), Band("subnormal", zero, tiny)),
        x_powers=True,
    )


def gradient_exponents(seed: int) -> torch.Tensor:
    """log2 of the magnitudes, other than zero, of the gradients of all layers' outputs at one step of a float32 run."""
    trainer = fresh_trainer("fp32", seed)
    *before, probed = first_batches(PROBED_STEP)
    for images in before:
        trainer.backward(trainer.loss(images))
        trainer.step()
    seen: list[torch.Tensor] = []
    for layer in trainer.model:
        layer.register_forward_hook(lambda layer, inputs, output: watch(output, seen))
    trainer.backward(trainer.loss(probed))
    gradient = torch.cat(seen)
    return torch.log2(gradient[gradient != 0].abs())


def watch(output: torch.Tensor, seen: list[torch.Tensor]) -> None:
    output.register_hook(lambda gradient: seen.append(gradient.flatten()))


def below(exponents: torch.Tensor, bound: float) -> float:
    return (exponents <= bound).float().mean().item()


def histogram(name: str, exponents: torch.Tensor) -> Series:
    """Share of elements per power of two."""
    low, high = math.floor(exponents.min().item()), math.ceil(exponents.max().item())
    counts = torch.histc(exponents, bins=high - low, min=low, max=high)
    return Series(name, tuple(e + 0.5 for e in range(low, high)), tuple((counts / counts.sum()).tolist()))


def scale_chart(runs: Sequence[Judged], seed: int) -> Chart:
    scaled = [run for run in runs if run.scaled]
    search = scale_search(seed, min(SEARCH_STEPS, len(runs[0].result.losses)))
    falls, rises = (sum(map(moved, search, search[1:])) for moved in (float.__gt__, float.__lt__))
    overflows = sum(run.result.skipped for run in scaled)
    above = f"backed off {overflows} times" if overflows else "never had to move"
    return Chart(
        "Loss scale",
        "step",
        "scale",
        (
            *(curve(run.name, run.result.scales, steps=True) for run in scaled),
            curve("too high at first", search, steps=True),
        ),
        log=2,
        note=f"The scale of the run above {above}. Started far too high, and allowed to grow after {SEARCH_INTERVAL} "
        f"clean steps, it finds its own way: it backed off {falls} times, each time because a step overflowed and was "
        f"skipped, and grew {rises} times.",
    )


def scale_search(seed: int, steps: int) -> list[float]:
    """The scale at each step of a short run that starts too high and may soon grow again."""
    trainer = fresh_trainer("fp16-mixed", seed)
    scaler = GradScaler("cpu", init_scale=SEARCH_START, max_scale=SEARCH_START, growth_interval=SEARCH_INTERVAL)
    trainer.precision = Precision("fp16-mixed", trainer.optimizer, model=trainer.model, scaler=scaler)
    scales = []
    for images in first_batches(steps):
        trainer.backward(trainer.loss(images))
        scales.append(trainer.step()[1])
    return scales


def fresh_trainer(mode: str, seed: int) -> task.Trainer:
    torch.manual_seed(seed)
    return task.Trainer(mode, task.autoencoder())


def first_batches(steps: int) -> Iterator[torch.Tensor]:
    return itertools.islice(task.batches(task.digits().train, epochs=steps), steps)
