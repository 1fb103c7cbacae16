"""One task, six precisions: a deep autoencoder of logistic units on handwritten digits.

The loss is the mean over 720 images of 64 pixels, so each output gets a gradient of about 2·error/46080, and every
logistic layer on the way back passes on at most a quarter of it. In float32 such numbers are nothing special. In fp16
everything below 2^-25 ≈ 3e-8 becomes zero: the encoder receives no gradient and the network learns the average digit.

    python examples/underflow_task.py --mode fp16-unscaled
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mixprec import Precision

MODES = ("fp32", "fp16-unscaled", "half", "fp16-mixed", "bf16-mixed", "bf16-pure")
WIDTHS = (64, 48, 48, 24, 48, 48, 64)
BATCH = 720
EPOCHS = 450
LEARNING_RATE = 2e-2
PROBE_EVERY = 50  # steps between two comparisons with float32 gradients
GIVE_UP_AFTER = 20  # steps with a loss that is no number

OnStep = Callable[[int, int, float, float], None]
"""Called after each step with: step (from 1), steps in all, training loss, loss scale."""


@dataclass(frozen=True)
class Bytes:
    """What one training step keeps in memory. `weight_copies` are 16-bit casts that autocast keeps for backward."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    weight_copies: int = 0


@dataclass
class Result:
    """How one run went. `accuracy`: of the reconstructed test images, the share that still reads as its digit, which is
    decided by the nearest training image. `flushed`: of the gradient elements that are not zero in float32, the share
    that was zero here, averaged over probes. `ended_early` is the step at which the loss had stopped being a number.
    """

    mode: str
    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    test_loss: float = math.nan
    accuracy: float = math.nan
    applied: int = 0
    skipped: int = 0
    flushed: float = math.nan
    bytes: Bytes = field(default_factory=Bytes)
    seconds: float = 0.0
    ended_early: int | None = None


@dataclass(frozen=True)
class Digits:
    """Images of 8×8 pixels in [0, 1] as rows of 64, and what they show."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def digits() -> Digits:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]
    return Digits(x[: 2 * BATCH], y[: 2 * BATCH], x[2 * BATCH :], y[2 * BATCH :])


def autoencoder() -> nn.Sequential:
    layers = [layer for a, b in itertools.pairwise(WIDTHS) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])  # the output is linear


class Trainer:
    """One of the six ways to make a step. What differs between them is all in this class."""

    def __init__(self, mode: str, model: nn.Module) -> None:
        if mode not in MODES:
            raise SystemExit(f"mode is {mode!r}; one of {', '.join(MODES)}")
        self.mode, self.model = mode, model
        self.storage = {"half": torch.float16, "bf16-pure": torch.bfloat16}.get(mode, torch.float32)
        model.to(self.storage)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        naive = mode in ("fp16-unscaled", "half", "bf16-pure")
        self.precision = None if naive else Precision(mode, self.optimizer, model=model)

    def region(self) -> AbstractContextManager[object]:
        if self.precision is not None:
            return self.precision.autocast()
        return torch.autocast("cpu", torch.float16) if self.mode == "fp16-unscaled" else nullcontext()

    def loss(self, images: Tensor) -> Tensor:
        with self.region():
            return F.mse_loss(self.model(images.to(self.storage)).float(), images)

    def backward(self, loss: Tensor) -> None:
        if self.precision is not None:
            self.precision.backward(loss)
        else:
            self.optimizer.zero_grad()
            loss.backward()

    def step(self) -> tuple[bool, float]:
        """Whether the step was applied, and the loss scale that it carried."""
        if self.precision is not None:
            report = self.precision.step()
            return report.applied, report.scale_before
        self.optimizer.step()
        return True, 1.0


def train(mode: str, seed: int = 0, epochs: int = EPOCHS, on_step: OnStep | None = None) -> Result:
    """Train in `mode`. All six with the default epochs take about a minute on two CPU cores."""
    torch.set_num_threads(1)  # the matrices are small, and one thread adds up in the same order every time
    torch.manual_seed(seed)
    data, trainer, result = digits(), Trainer(mode, autoencoder()), Result(mode)
    held = [saved_bytes(trainer, data.train[:n].clone()) for n in (BATCH, 2 * BATCH)]
    flushed: list[float] = []
    started = time.perf_counter()
    steps = epochs * (len(data.train) // BATCH)
    for step, images in enumerate(batches(data.train, epochs), start=1):
        loss = trainer.loss(images)
        trainer.backward(loss)
        if step % PROBE_EVERY == 1:
            flushed.append(flushed_share(trainer, images))
        if step == 2:  # the optimizer has its state by now
            result.bytes = measure(trainer, held)
        applied, scale = trainer.step()
        result.applied, result.skipped = result.applied + applied, result.skipped + (not applied)
        result.losses.append(loss.item())
        result.scales.append(scale)
        if on_step is not None:
            on_step(step, steps, result.losses[-1], scale)
        if len(result.losses) > GIVE_UP_AFTER and all(map(math.isnan, result.losses[-GIVE_UP_AFTER:])):
            result.ended_early = step
            break
    result.seconds = time.perf_counter() - started
    result.flushed = sum(flushed) / len(flushed)
    result.test_loss, result.accuracy = evaluate(trainer, data)
    return result


def batches(images: Tensor, epochs: int) -> Iterator[Tensor]:
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            yield images[chosen]


@torch.no_grad()
def evaluate(trainer: Trainer, data: Digits) -> tuple[float, float]:
    with trainer.region():
        seen = trainer.model(data.test.to(trainer.storage)).float()
    nearest = torch.cdist(seen, data.train).argmin(dim=1)
    right = (data.train_labels[nearest] == data.test_labels).float().mean().item()
    return F.mse_loss(seen, data.test).item(), right


def flushed_share(trainer: Trainer, images: Tensor) -> float:
    """Of the gradient elements that float32 finds nonzero at these weights, the share that is zero in this run."""
    reference = copy.deepcopy(trainer.model).float()
    exact = torch.autograd.grad(F.mse_loss(reference(images), images), list(reference.parameters()))
    pairs = [(e, p.grad) for e, p in zip(exact, trainer.model.parameters(), strict=True) if p.grad is not None]
    nonzero = sum(int(e.count_nonzero()) for e, _ in pairs)
    lost = sum(int(((e != 0) & (g == 0)).sum()) for e, g in pairs)
    return lost / nonzero if nonzero else math.nan


def saved_bytes(trainer: Trainer, images: Tensor) -> int:
    """Bytes that forward keeps for backward: distinct storages, without the parameters' own."""
    own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
    kept: dict[int, Tensor] = {}  # holding the tensors keeps addresses from being used twice

    def pack(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.loss(images)
    return sum(t.untyped_storage().nbytes() for address, t in kept.items() if address not in own)


def measure(trainer: Trainer, held: list[int]) -> Bytes:
    """`held` are the saved bytes of one batch and of two: what grows with the batch is activations, the rest copies."""
    parameters = list(trainer.model.parameters())
    state = [t for s in trainer.optimizer.state.values() for t in s.values() if isinstance(t, Tensor) and t.dim()]
    activations = held[1] - held[0]
    return Bytes(
        weights=sum(p.nbytes for p in parameters),
        gradients=sum(p.grad.nbytes for p in parameters if p.grad is not None),
        optimizer=sum(t.nbytes for t in state),
        activations=activations,
        weight_copies=held[0] - activations,
    )


def mode_and_steps(result: Result) -> str:
    return f"{result.mode}, {result.applied} steps applied and {result.skipped} skipped"


def main(argv: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES, default="fp16-mixed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args(argv)
    result = train(options.mode, options.seed, options.epochs)
    outcome = f"test loss {result.test_loss:.4f}, accuracy {result.accuracy:.1%}, {result.flushed:.0%} flushed to zero"
    print(f"{mode_and_steps(result)}: {outcome}, {result.seconds:.0f} s")
    return result


if __name__ == "__main__":
    main()
