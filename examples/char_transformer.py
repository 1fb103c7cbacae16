"""Predict the next character of Python's own documentation with a small transformer.

python examples/char_transformer.py --mode bf16-mixed
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mixprec import Precision, warmup

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 32, 32, 2, 2, 16


class Block(nn.Module):
    """Attention to what came before, then a feed-forward layer, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(self.before_attention(x)).unflatten(-1, (3, HEADS, -1)).unbind(-3)
        turned = (part.transpose(1, 2) for part in (query, key, value))
        seen = F.scaled_dot_product_attention(*turned, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.mix(seen)
        return x + self.feed(self.before_feed(x))


class Transformer(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.read = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, text: Tensor) -> Tensor:
        return self.read(self.blocks(self.embed(text) + self.place.weight))


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto", help="fp32, fp16-mixed, bf16-mixed, fp16-master, bf16-master, auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)

    text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])
    windows = codes.unfold(0, CONTEXT + 1, 1)
    train, test = windows[:180_000], windows[180_000::64]

    model = Transformer(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = warmup(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps), steps=10)
    precision = Precision(options.mode, optimizer, model=model, max_norm=1.0, scheduler=schedule)
    print(precision.reason)

    for _ in range(options.steps):
        batch = train[torch.randint(0, len(train), (BATCH,))]
        with precision.autocast():
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        precision.backward(loss)
        report = precision.step()

    with torch.no_grad(), precision.autocast():
        logits = model(test[:, :-1]).float()
    result = {"loss": F.cross_entropy(logits.flatten(0, 1), test[:, 1:].flatten()).item()}
    print(f"{precision.mode}: test loss {result['loss']:.3f} per character, last gradient norm {report.grad_norm:.2f}")
    return result


if __name__ == "__main__":
    main()
