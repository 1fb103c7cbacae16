"""Compress handwritten digits to 24 numbers with a deep autoencoder of logistic units.

Its gradients are small: the loss is a mean over 46,080 pixels and each logistic layer passes on at most a quarter. In
fp16 they need the loss scale that `Precision` brings; without one they become zero, and it learns the average digit.

    python examples/digits_autoencoder.py --mode fp16-mixed
"""

from __future__ import annotations

import argparse
import itertools

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mixprec import Precision

WIDTHS = (64, 48, 48, 24, 48, 48, 64)


def digits() -> Tensor:
    """1,797 images of 64 pixels in [0, 1], in an order that mixes the writers."""
    images, _ = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images / 16, dtype=torch.float32)[order]


def autoencoder() -> nn.Sequential:
    layers = [layer for a, b in itertools.pairwise(WIDTHS) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])  # the output is linear


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto", help="fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)

    images = digits()
    train, test = images[:1440], images[1440:]
    model = autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    precision = Precision(options.mode, optimizer, model=model)
    print(precision.reason)

    applied = 0
    for _ in range(options.steps):
        batch = train[torch.randint(0, len(train), (720,))]
        with precision.autocast():
            loss = F.mse_loss(model(batch), batch)
        precision.backward(loss)
        report = precision.step()
        applied += report.applied

    with torch.no_grad(), precision.autocast():
        error = F.mse_loss(model(test), test).item()
    print(f"{precision.mode}: test error {error:.4f}, {applied} steps applied, last loss scale {report.scale_before:g}")
    return {"loss": error, "applied": float(applied)}


if __name__ == "__main__":
    main()
