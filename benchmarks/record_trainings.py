"""Do other loss-scale rules end in another loss? The examples are trained under each, with several seeds.

Writes benchmarks/data/trainings.json; takes some minutes, because few CPUs compute float16 fast:

    python -m benchmarks.record_trainings
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.headroom import RULES
from benchmarks.record_streams import example_main
from benchmarks.streams import DATA
from mixprec import GradScaler, Precision, StepReport
from mixprec._headroom import HeadroomRules
from mixprec._loss_scale import Rules

TRAININGS = ("digits_convnet", "digits_autoencoder", "char_transformer", "gan_two_optimizers")
LOW_START = 2.0**4
TRAINED: Mapping[str, Rules | HeadroomRules | None] = {
    "float32": None,
    "torch": RULES["torch"],
    "headroom, 3 bits": RULES["headroom, 3 bits"],
    "torch from 2^4": replace(RULES["torch"], init_scale=LOW_START),
    "headroom, 3 bits, from 2^4": replace(RULES["headroom, 3 bits"], init_scale=LOW_START),
}
"""A start at 2**4 is to these trainings what a loss 2**-12 times as large is to a start at 2**16."""


class CountingScaler(GradScaler):
    """A scaler that counts the steps that its rules lost."""

    def __init__(self, rules: Rules | HeadroomRules) -> None:
        super().__init__("cpu", rules=rules)
        self.lost = 0

    def step_together(self, *args: Any, **kwargs: Any) -> tuple[StepReport, ...]:
        reports = super().step_together(*args, **kwargs)
        self.lost += not reports[0].applied
        return reports


def train(example: str, name: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The losses that `example` ends with under the rules called `name`, or in float32."""
    main = example_main(example)
    losses, scalers = [], []
    rules = TRAINED[name]
    mode = "fp32" if rules is None else "fp16-mixed"
    for seed in seeds:
        with _scalers(rules) as made, contextlib.redirect_stdout(io.StringIO()):
            losses.append(main(["--mode", mode, "--seed", str(seed)])["loss"])
        scalers += made
    return {
        "example": example,
        "rules": name,
        "loss": statistics.mean(losses),
        "loss_low": min(losses),
        "loss_high": max(losses),
        "lost": sum(scaler.lost for scaler in scalers) / len(seeds) if scalers else None,
    }


@contextmanager
def _scalers(rules: Rules | HeadroomRules | None) -> Iterator[list[CountingScaler]]:
    """Every `Precision` made inside gets a scaler of its own with these rules, unless they are None."""
    made: list[CountingScaler] = []
    original = Precision.__init__

    def init(precision: Precision, *args: Any, **kwargs: Any) -> None:
        assert rules is not None
        made.append(CountingScaler(rules))
        original(precision, *args, scaler=made[-1], **kwargs)

    if rules is not None:
        Precision.__init__ = init  # type: ignore[method-assign,assignment] # the examples take no scaler
    try:
        yield made
    finally:
        Precision.__init__ = original  # type: ignore[method-assign] # as it was


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=DATA / "trainings.json")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # the examples' matrices are slower on two threads
    rows = []
    for example in TRAININGS:
        for name in TRAINED:
            rows.append(train(example, name, range(options.seeds)))
            print(rows[-1], flush=True)
    options.out.write_text(json.dumps({"seeds": options.seeds, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
