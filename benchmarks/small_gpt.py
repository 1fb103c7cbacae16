"""A byte-level GPT, small enough for a CPU and built as everybody builds it: nothing in it knows of mixprec."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, BLOCKS, HEADS, CONTEXT, BATCH, BYTES = 256, 4, 4, 256, 8, 256


class Block(nn.Module):
    """Attention to what came before, then a feed-forward layer, each added to its input."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projections = nn.ModuleList(nn.Linear(width, size) for size in ([3 * width] if fused else [width] * 3))
        self.mix = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before_attention(x)
        projected = [project(normed) for project in self.projections]
        parts = projected if len(projected) == 3 else projected[0].chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.before_feed(x))))


class SmallGPT(nn.Module):
    """Bytes in, logits of the next byte out: (batch, context) -> (batch, context, 256).

    `fused` computes query, key and value by one matrix product, as GPT-2 does; otherwise by three, as BERT does.
    """

    def __init__(
        self,
        width: int = WIDTH,
        blocks: int = BLOCKS,
        heads: int = HEADS,
        context: int = CONTEXT,
        *,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(BYTES, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, fused) for _ in range(blocks)))
        self.norm, self.read = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, text: Tensor) -> Tensor:
        return self.read(self.norm(self.blocks(self.embed(text) + self.place.weight[: text.shape[1]])))


def next_byte_loss(logits: Tensor, text: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), text.flatten())


def batch(batch_size: int = BATCH, context: int = CONTEXT, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(inputs, targets), random bytes whose repetitions give the model something to learn."""
    generator = torch.Generator().manual_seed(seed)
    phrase = torch.randint(0, BYTES, (batch_size, 1 + context // 4), generator=generator).repeat(1, 5)
    return phrase[:, :context].contiguous(), phrase[:, 1 : context + 1].contiguous()
