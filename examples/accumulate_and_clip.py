"""Train with large batches in small pieces: accumulation, clipping, warm-up, and pieces of unequal size.

A step sees 256 samples in micro-batches of 48, 48, 48, 48, 48 and 16. Weighted by their sizes they give exactly the
gradient of the whole batch, which is clipped after unscaling. The epoch's last batch is smaller, so `finish` ends it.

    python examples/accumulate_and_clip.py --mode fp16-mixed
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from mixprec import Precision, warmup

BATCH, PIECE = 256, 48


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto", help="fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)

    data, target = load_digits(return_X_y=True)
    images, labels = torch.tensor(data / 16, dtype=torch.float32), torch.tensor(target)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    precision = Precision(
        options.mode,
        optimizer,
        model=model,
        max_norm=1.0,
        accumulate=-(-BATCH // PIECE),
        scheduler=warmup(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps), steps=5),
    )
    print(precision.reason)

    clipped = applied = 0
    while applied < options.steps:
        for batch in torch.randperm(1440).split(BATCH):  # five of 256 and one of 160
            for piece in batch.split(PIECE):
                with precision.autocast():
                    loss = F.cross_entropy(model(images[piece]), labels[piece])
                precision.backward(loss, weight=len(piece))
                report = precision.step()
            if precision.accumulating:  # the small batch has fewer pieces than a window
                report = precision.finish()
            applied += report.applied
            clipped += report.applied and report.clip_coefficient < 1.0

    with torch.no_grad(), precision.autocast():
        logits = model(images[1440:]).float()
    result = {
        "loss": F.cross_entropy(logits, labels[1440:]).item(),
        "accuracy": (logits.argmax(1) == labels[1440:]).float().mean().item(),
        "clipped": clipped / applied,
    }
    print(f"{precision.mode}: accuracy {result['accuracy']:.1%}, {result['clipped']:.0%} of {applied} steps clipped")
    return result


if __name__ == "__main__":
    main()
