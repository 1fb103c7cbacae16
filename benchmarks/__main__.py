"""Measure mixprec beside its peers.

python -m benchmarks --quick
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import accumulation, autocast_cost, gpt_step, headroom, lint_speed, monitor_cost, optimizer_phase, page
from benchmarks.harness import Answer, Bench, document, machine
from benchmarks.render import for_terminal, machine_line, targets_table

QUESTIONS: Mapping[str, Callable[[Bench, float], Answer]] = {
    "optimizer_phase": optimizer_phase.run,
    "autocast_cost": autocast_cost.run,
    "gpt_step": gpt_step.run,
    "accumulation": accumulation.run,
    "headroom": headroom.run,
    "lint_speed": lint_speed.run,
    "monitor_cost": monitor_cost.run,
}
QUICK_SHARE = 0.08
CUDA_SHARE = 0.8


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    console = Console(width=None if Console().is_terminal else 160)
    share = QUICK_SHARE if options.quick else 1.0 if options.device == "cpu" else CUDA_SHARE
    bench = Bench(options.device, options.quick, share)
    here = machine(bench)
    if here["load"] is not None and here["load"] > 0.5:
        console.print(f"The machine is busy (load {here['load']:.1f}): look at the quartiles before you believe.")
    bandwidth = bench.bandwidth()
    answers = []
    for name in options.only or QUESTIONS:
        start = time.perf_counter()
        answers.append(QUESTIONS[name](bench, max(bandwidth.values())))
        for table in document(here, bandwidth, answers[-1:])["tables"]:
            console.print(for_terminal(table))
        console.print(f"{name}: {time.perf_counter() - start:.0f} s\n")
    found = document(here, bandwidth, answers)
    if found["targets"]:
        console.print(for_terminal(targets_table(found)))
    console.print(machine_line(found))
    out = page.RESULTS if options.record else options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(f"The numbers: {out}", soft_wrap=True)
    if options.record:
        page.main()


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under two minutes, with wider quartiles")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="where to write the numbers")
    parser.add_argument("--record", action="store_true", help="write them to benchmarks/results and docs/benchmarks.md")
    options = parser.parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a CUDA device, and torch sees none here")
    if options.record and options.device != "cpu":
        parser.error("--record keeps the CPU's numbers; write those of an accelerator with --out")
    return options


if __name__ == "__main__":
    main()
