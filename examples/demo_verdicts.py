"""Whether a run of the demo trained, and one sentence that says why, from nothing but its record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import underflow_task as task

from mixprec.formats import FloatFormat, find_format

NAMES = {
    "fp32": "fp32",
    "fp16-unscaled": "fp16 unscaled",
    "half": "naive .half()",
    "fp16-mixed": "fp16-mixed",
    "bf16-mixed": "bf16-mixed",
    "bf16-pure": "bf16 weights",
}
ACCURACY_MARGIN, LOSS_MARGIN = 0.03, 1.25  # what still counts as trained, against float32
ADAM_EPS = 1e-8  # torch.optim.Adam's default


@dataclass(frozen=True)
class Judged:
    """A run beside the float32 run. `average_digit`: the test loss of always answering the average training image."""

    result: task.Result
    reference: task.Result
    average_digit: float

    @property
    def name(self) -> str:
        return NAMES[self.result.mode]

    @property
    def worked(self) -> bool:
        """Nearly float32's accuracy and loss, where float32 itself learned: less than half the average digit's loss."""
        right = self.result.accuracy >= self.reference.accuracy - ACCURACY_MARGIN
        near = self.result.test_loss <= LOSS_MARGIN * self.reference.test_loss
        return right and near and self.reference.test_loss < 0.5 * self.average_digit

    @property
    def scaled(self) -> bool:
        return max(self.result.scales) > 1

    @property
    def storage(self) -> FloatFormat:
        """The format that the mode keeps weights in."""
        return find_format(task.Trainer(self.result.mode, task.autoencoder()).storage)

    @property
    def compute(self) -> FloatFormat:
        """The format that the mode's layers compute in, seen from what they put out."""
        trainer = task.Trainer(self.result.mode, task.autoencoder())
        with torch.no_grad(), trainer.region():
            return find_format(trainer.model(torch.zeros(1, task.WIDTHS[0], dtype=trainer.storage)).dtype)

    @property
    def first_nan(self) -> int | None:
        """The step, from 1, whose loss was the first that was no number."""
        return next((step for step, loss in enumerate(self.result.losses, 1) if not math.isfinite(loss)), None)


def sentence(run: Judged) -> str:
    if run.result is run.reference:
        return reference_sentence(run)
    if run.first_nan is not None:
        return nan_sentence(run)
    if not run.worked:
        return stuck_sentence(run)
    return scaled_sentence(run) if run.scaled else unscaled_sentence(run)


def reference_sentence(run: Judged) -> str:
    verdict = "The others are judged by this." if run.worked else "With so few steps it learned too little to judge by."
    trivial = f"always answering the average digit costs {run.average_digit:.4f}"
    return f"Test loss {run.result.test_loss:.4f}, where {trivial}. {verdict}"


def nan_sentence(run: Judged) -> str:
    seen = f"The loss was no number from step {run.first_nan} on."
    flushed = f"{run.result.flushed:.0%} of the gradient flushed to zero"
    if run.storage.round(ADAM_EPS) == 0.0 and run.result.flushed > 0:
        zero = f"ε = {ADAM_EPS:g} is 0 in {run.storage.name}"
        return f"{seen} Adam divides by √v + ε, and {zero}; with {flushed} that is 0/0."
    return f"{seen} It had {flushed}."


def stuck_sentence(run: Judged) -> str:
    if run.result.flushed < 0.01:
        return f"Nothing was flushed to zero, yet it learned too little. Test loss {against(run)}."
    stuck = abs(run.result.test_loss / run.average_digit - 1) < 0.02
    end = "the network answers with the average digit" if stuck else "the network learned too little"
    return (
        f"{run.result.flushed:.0%} of the gradient elements that float32 has were zero here, at a loss scale of "
        f"{max(run.result.scales):g}: {end}. Test loss {against(run)}."
    )


def scaled_sentence(run: Judged) -> str:
    low, high = min(run.result.scales), max(run.result.scales)
    scale = f"{high:g}" if low == high else f"{low:g} to {high:g}"
    skipped = f"{run.result.skipped} steps overflowed and were skipped" if run.result.skipped else "no step overflowed"
    return (
        f"The loss was multiplied by {scale} before backward, and so all but {run.result.flushed:.1%} of the gradient "
        f"was kept from becoming zero; {skipped}. Test loss {against(run)}."
    )


def unscaled_sentence(run: Judged) -> str:
    reach = f"Numbers in {run.compute.name} are normal down to {run.compute.tiny:.1g}"
    lost = f"{run.result.flushed:.1%} of the gradient was" if run.result.flushed else "nothing was"
    narrow = run.result.bytes.weights < run.reference.bytes.weights
    bits = f" Weights keep {run.storage.mantissa_bits + 1} significant bits, with no float32 masters." if narrow else ""
    return f"{reach}: without any scaling {lost} lost.{bits} Test loss {against(run)}."


def against(run: Judged) -> str:
    """The test loss, and how it compares with float32's."""
    ratio = run.result.test_loss / run.reference.test_loss
    if abs(ratio - 1) < 0.005:
        return f"{run.result.test_loss:.4f}, like fp32's"
    compared = f"{ratio:.1f} times" if ratio > 2 else f"{abs(ratio - 1):.0%} {'above' if ratio > 1 else 'below'}"
    return f"{run.result.test_loss:.4f}, {compared} fp32's"
