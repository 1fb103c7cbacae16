"""Classify handwritten digits with a small convolutional network.

python examples/digits_convnet.py --mode fp16-mixed
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mixprec import Precision


def digits() -> tuple[Tensor, Tensor]:
    """1,797 images of 8×8 pixels in [0, 1], and what they show."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto", help="fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)

    images, labels = digits()
    train, test = slice(0, 1440), slice(1440, None)
    model = convnet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    precision = Precision(options.mode, optimizer, model=model)
    print(precision.reason)

    skipped = 0
    for _ in range(options.steps):
        batch = torch.randint(0, 1440, (64,))
        with precision.autocast():
            loss = F.cross_entropy(model(images[train][batch]), labels[train][batch])
        precision.backward(loss)
        skipped += not precision.step().applied

    model.eval()
    with torch.no_grad(), precision.autocast():
        logits = model(images[test]).float()
    result = {
        "loss": F.cross_entropy(logits, labels[test]).item(),
        "accuracy": (logits.argmax(1) == labels[test]).float().mean().item(),
        "skipped": float(skipped),
    }
    print(
        f"{precision.mode}: test loss {result['loss']:.3f}, accuracy {result['accuracy']:.1%}, {skipped} steps skipped"
    )
    return result


if __name__ == "__main__":
    main()
