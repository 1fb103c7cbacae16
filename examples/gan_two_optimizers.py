"""Draw digits with a generative adversarial network: two networks, two optimizers, two loss scales.

Each network has a `Precision` of its own, because each has its own losses and its own idea of a good loss scale.

    python examples/gan_two_optimizers.py --mode fp16-mixed
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mixprec import Precision

NOISE, BATCH = 16, 64


def networks() -> tuple[nn.Module, nn.Module]:
    """What draws 64 pixels from noise, and what tells drawings from digits."""
    draw = nn.Sequential(nn.Linear(NOISE, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())
    judge = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    return draw, judge


def is_real(verdict: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict))


def is_drawn(verdict: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(verdict, torch.zeros_like(verdict))


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto", help="fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)

    digits = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    draw, judge = networks()
    settings = {"lr": 2e-3, "betas": (0.5, 0.999)}
    drawing = Precision(options.mode, torch.optim.Adam(draw.parameters(), **settings), model=draw)
    judging = Precision(options.mode, torch.optim.Adam(judge.parameters(), **settings), model=judge)
    print(drawing.reason)

    for _ in range(options.steps):
        real, noise = digits[torch.randint(0, len(digits), (BATCH,))], torch.randn(BATCH, NOISE)
        with judging.autocast():
            drawn = draw(noise)
            judge_loss = is_real(judge(real)) + is_drawn(judge(drawn.detach()))
        judging.backward(judge_loss)
        judging.step()

        with drawing.autocast():
            draw_loss = is_real(judge(drawn))
        drawing.backward(draw_loss)  # leaves gradients in `judge` too; its next window clears them
        drawing.step()

    with torch.no_grad(), drawing.autocast():
        drawn = draw(torch.randn(1000, NOISE)).float()
    result = {  # how far the average drawing and the spread of drawings are from those of digits
        "loss": (drawn.mean(0) - digits.mean(0)).abs().mean().item(),
        "spread": drawn.std(0).mean().item() / digits.std(0).mean().item(),
    }
    print(f"{drawing.mode}: mean pixel off by {result['loss']:.3f}, spread {result['spread']:.2f} of that of digits")
    return result


if __name__ == "__main__":
    main()
