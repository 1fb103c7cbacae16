"""The audit's forecasts beside what a GPU really takes: memory in every mode, step time in every precision.

    python -m benchmarks.audit_on_cuda [--device cuda] [--small] [--steps 10] [--output FILE]

For a transformer and a convolutional network: one watched float32 step gives the forecasts, then each mode is trained
for a few steps and CUDA's own counter and clock are read. Meant to take under five minutes on one data-centre GPU (not
run on one yet), and written to benchmarks/data/audit_on_cuda.json with the device and the date. `--small` with
`--device cpu` tries the script itself, where the counter is the audit's own and nothing is written unasked.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mixprec
from mixprec import KahanSum, StochasticRounding
from mixprec.audit import AuditReport

MODES = ("fp32", "fp16-mixed", "bf16-mixed", "fp16-master", "bf16-master")
LOWBIT = {"bf16 + Kahan summation": KahanSum, "bf16 + stochastic rounding": StochasticRounding}


class Block(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """GPT-2 small where nothing else is said."""

    def __init__(self, vocabulary: int = 50304, width: int = 768, depth: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(ids))))


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer)),
        )
        same = stride == 1 and inner == outer
        short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        self.short = nn.Identity() if same else short

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x))


def convnet(small: bool) -> nn.Module:
    """ResNet-50, or one narrow block of it."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for width, depth, stride in ((16, 1, 1),) if small else ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(depth):
            layers.append(Bottleneck(inner, width, stride if index == 0 else 1))
            inner = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def transformer_task(device: str, small: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """The model and its loss on a fresh batch."""
    model = Transformer(512, 32, 1, 2) if small else Transformer()
    shape, words = ((2, 32), 512) if small else ((8, 1024), 50304)

    def loss(net: nn.Module) -> Tensor:
        ids = torch.randint(0, words, shape, device=device)
        return F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())

    return model.to(device), loss


def convnet_task(device: str, small: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """The model and its loss on a fresh batch."""
    shape = (2, 3, 32, 32) if small else (64, 3, 224, 224)

    def loss(net: nn.Module) -> Tensor:
        return F.cross_entropy(net(torch.randn(shape, device=device)), torch.arange(shape[0], device=device))

    return convnet(small).to(device), loss


TASKS = {"transformer": transformer_task, "convnet": convnet_task}


def training_step(mode: str, model: nn.Module, loss: Callable[[nn.Module], Tensor], device: str) -> Callable[[], None]:
    """One step in `mode`, with a plain AdamW under it."""
    if mode in LOWBIT:
        optimizer = LOWBIT[mode](torch.optim.AdamW(model.bfloat16().parameters()))

        def lowbit() -> None:
            with torch.autocast(device, torch.bfloat16):
                value = loss(model)
            value.backward()
            del value
            optimizer.step()
            optimizer.zero_grad()

        return lowbit
    precision = mixprec.Precision(mode, torch.optim.AdamW(model.parameters()), model=model)

    def step() -> None:
        with precision.autocast():
            value = loss(model)
        precision.backward(value)
        del value
        precision.step()

    return step


def measured(step: Callable[[], None], model: nn.Module, device: str, steps: int) -> dict[str, Any]:
    """Peak of memory in bytes and median time of a step in seconds, after a warm-up of three."""
    if device != "cuda":
        report = mixprec.audit(model, step, warmup=1, timed=steps)
        return {"peak": report.memory.peak, "seconds": report.timing.steps[0].seconds}
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return {"peak": torch.cuda.max_memory_allocated(), "seconds": statistics.median(seconds)}


def compare(name: str, device: str, small: bool, steps: int) -> dict[str, Any]:
    """Forecast and measurement of one task in every mode."""
    torch.manual_seed(0)
    model, loss = TASKS[name](device, small)
    report = mixprec.audit(model, training_step("fp32", model, loss, device), warmup=2, timed=0)
    forecasts = {row.precision: dataclasses.asdict(row) for row in report.forecasts}
    modes = {}
    for mode in (*MODES, *LOWBIT):
        torch.manual_seed(0)
        model, loss = TASKS[name](device, small)
        seen = measured(training_step(mode, model, loss, device), model, device, steps)
        error = forecasts[mode]["peak"] / seen["peak"] - 1
        modes[mode] = {**seen, "forecast_peak": forecasts[mode]["peak"], "error": error}
        took = f"{seen['peak'] / 2**20:9.1f} MiB, forecast {error:+.1%}, {1e3 * seen['seconds']:.1f} ms"
        print(f"{name:12} {mode:28} {took}")
        del model, loss
        if device == "cuda":
            torch.cuda.empty_cache()
    return {"modes": modes, "bound": _bound(report, modes)}


def _bound(report: AuditReport, modes: dict[str, Any]) -> dict[str, Any]:
    bound = report.bound
    low = "fp16-mixed" if bound.low_dtype == "float16" else "bf16-mixed"
    gain = modes["fp32"]["seconds"] / modes[low]["seconds"]
    print(f"{'':12} bound {bound.speedup:.2f}, in eager mode {bound.eager_speedup:.2f}, measured {gain:.2f}")
    return {**dataclasses.asdict(bound), "speedup": bound.speedup, "eager": bound.eager_speedup, "measured": gain}


KEPT = Path(__file__).parent / "data" / "audit_on_cuda.json"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    document = {
        "device": name,
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "tasks": {task: compare(task, options.device, options.small, options.steps) for task in TASKS},
    }
    output = options.output or (KEPT if options.device == "cuda" and not options.small else None)
    if output is not None:
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
