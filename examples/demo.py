"""One task in six precisions: who trains, who does not, and the number that says why.

Runs underflow_task.py in each of its modes, prints tables with one reason per run, and writes demo-report.html, a page
with the curves that works without a network. Every sentence is computed from what the runs recorded.

    python examples/demo.py --epochs 450 --json
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
import underflow_task as task
from demo_charts import gradient_chart, loss_chart, scale_chart
from demo_verdicts import ACCURACY_MARGIN, LOSS_MARGIN, NAMES, Judged, sentence
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from mixprec import __version__
from mixprec.report import json, text
from mixprec.report.comparison import Comparison, Grid, Outcome
from mixprec.report.html import comparison_page

FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)  # matrices this small are slower on two threads
    screen = text.console()
    results = run_all(options.seed, options.epochs)
    with text.console(stderr=True).status("measuring gradients, the loss scale and matrix products"):
        comparison = compare(results, options.seed, matrix_product_speeds())
    text.print_comparison(screen, comparison)
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / "demo-report.html"
    page.write_text(comparison_page(comparison), encoding="utf-8")
    screen.print(
        f"\nThe curves: {page} ({page.stat().st_size / 2**20:.1f} MiB, works without a network)", soft_wrap=True
    )
    if options.json:
        numbers = options.out / "demo-report.json"
        numbers.write_text(json.document(**comparison.data) + "\n", encoding="utf-8")
        screen.print(f"The numbers: {numbers}", soft_wrap=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=task.EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="write demo-report.json too")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for what is written")
    return parser.parse_args()


# ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def run_all(seed: int, epochs: int) -> list[task.Result]:
    with progress() as begin:
        return [task.train(mode, seed, epochs, begin(NAMES[mode])) for mode in task.MODES]


@contextmanager
def progress() -> Iterator[Callable[[str], task.OnStep]]:
    """Bars on a terminal; elsewhere one plain line per run, written when the run begins."""
    screen = text.console(stderr=True)
    loss_now = TextColumn("loss {task.fields[loss]:.4f}")
    columns = (TextColumn("{task.description:<14}"), BarColumn(), TaskProgressColumn(), loss_now, TimeElapsedColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal) as bars:

        def begin(name: str) -> task.OnStep:
            if not screen.is_terminal:
                print(f"training: {name}", file=sys.stderr, flush=True)
            bar = bars.add_task(name, total=None, loss=math.nan)
            return lambda step, steps, loss, scale: bars.update(bar, total=steps, completed=step, loss=loss)

        yield begin


def matrix_product_speeds() -> dict[str, float]:
    """GFLOP/s of a square matrix product on this CPU, by format."""
    return {name: best_rate(dtype) for name, dtype in FORMATS.items()}


def best_rate(dtype: torch.dtype, size: int = 512, seconds: float = 0.3) -> float:
    """The best of as many products as fit the time; the first one, which sets things up, is not counted."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    a @ b
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end or best == math.inf:
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


# ── reporting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def compare(results: list[task.Result], seed: int, speeds: dict[str, float]) -> Comparison:
    data = task.digits()
    average = F.mse_loss(data.train.mean(0).expand_as(data.test), data.test).item()
    runs = [Judged(result, results[0], average) for result in results]
    outcomes = tuple(Outcome(run.name, run.worked, sentence(run)) for run in runs)
    facts = machine(seed, results[0], speeds)
    return Comparison(
        title="One model, six precisions",
        lead="The same network, data, seed and optimizer; only the precision differs. " + summary(outcomes),
        outcomes=outcomes,
        grids=(
            Grid("Result", RESULT_COLUMNS, tuple(result_row(run) for run in runs)),
            Grid("Memory of one step, in KiB", MEMORY_COLUMNS, tuple(memory_row(run) for run in runs)),
        ),
        charts=(loss_chart(runs), gradient_chart(runs, seed), scale_chart(runs, seed)),
        facts=tuple(facts.items()),
        notes=NOTES,
        data={
            "version": __version__,
            "facts": facts,
            "gflops": speeds,
            "runs": [{**asdict(run.result), "worked": run.worked, "reason": sentence(run)} for run in runs],
        },
    )


def summary(outcomes: tuple[Outcome, ...]) -> str:
    failed = [outcome.name for outcome in outcomes if not outcome.worked]
    return f"{len(outcomes) - len(failed)} of {len(outcomes)} trained" + (
        f"; not: {', '.join(failed)}." if failed else "."
    )


RESULT_COLUMNS = ("run", "test loss", "accuracy", "steps applied", "steps skipped", "final scale", "flushed to zero")
MEMORY_COLUMNS = ("run", "weights", "gradients", "optimizer", "saved activations", "16-bit copies", "sum")

NOTES = (
    "Accuracy: the share of reconstructed test images that still read as their digit, by the nearest training image.",
    "Flushed to zero: of the gradient elements that are not zero in float32 at the same weights and batch, the share "
    f"that was zero in the run, averaged over a comparison every {task.PROBE_EVERY} steps.",
    "Memory is counted from the tensors that one step keeps. Saved activations are what forward keeps for backward; "
    "16-bit copies are the weights that autocast casts and keeps with them.",
    f"Trained: accuracy within {ACCURACY_MARGIN:.0%} of fp32's and test loss at most {LOSS_MARGIN:g} times fp32's.",
)


def result_row(run: Judged) -> tuple[str, ...]:
    result = run.result
    outcome = (f"{result.test_loss:.4f}", f"{result.accuracy:.1%}", str(result.applied), str(result.skipped))
    scale = f"{result.scales[-1]:g}" if run.scaled else "none"
    return (run.name, *outcome, scale, f"{result.flushed:.1%}")


def memory_row(run: Judged) -> tuple[str, ...]:
    held = run.result.bytes
    parts = (held.weights, held.gradients, held.optimizer, held.activations, held.weight_copies)
    return (run.name, *(f"{part / 1024:.0f}" for part in (*parts, sum(parts))))


def machine(seed: int, reference: task.Result, speeds: dict[str, float]) -> dict[str, str]:
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in speeds.items())
    return {
        "task": task.__doc__.splitlines()[0].partition(": ")[2].rstrip("."),
        "steps": f"{len(reference.losses)} of {task.BATCH} images; Adam at {task.LEARNING_RATE:g}; seed {seed}",
        "parameters": str(reference.bytes.weights // 4),
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, 1 thread",
        "speed": f"{rates} GFLOP/s in a 512×512 matrix product. {meaning_of(speeds)}",
        "versions": f"mixprec {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }


def meaning_of(speeds: dict[str, float]) -> str:
    """What this machine's speed in 16 bits means for the times of these runs."""
    slow = {name: rate / speeds["fp32"] for name, rate in speeds.items() if rate < speeds["fp32"]}
    ratios = " and ".join(f"{name} at {ratio:.2f} times" for name, ratio in slow.items())
    said = f"This CPU multiplies {ratios} the speed of fp32" if slow else "The network is too small to profit"
    return f"{said}: the runs show what a format does to numbers, not to time."


if __name__ == "__main__":
    main()
