"""Audits a small language model that has four things wrong, prints what to change, and writes the page.

python examples/audit_a_model.py [audit.html]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mixprec
from mixprec.report import text
from mixprec.report.audit_text import print_audit
from mixprec.report.html import audit_page


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("gate", torch.rand(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(self.norm(x))
        if h.abs().max().item() > 1e4:  # the host waits in the middle of forward (MP104)
            h = h.clamp(-1e4, 1e4)
        return x + self.down(F.gelu(h * self.gate))  # a float32 buffer: what follows is float32 (MP086)


class Model(nn.Module):
    def __init__(self, vocabulary: int = 5027, width: int = 250, depth: int = 3) -> None:  # no multiples of 8 (MP101)
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.embedding(ids)))


def main() -> None:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        ids = torch.randint(0, 5027, (8, 64))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids)
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())  # logits once more in float32 (MP122)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    report = mixprec.audit(model, step, timed=2)
    print_audit(text.console(), report, lambda location: None)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(audit_page(report), encoding="utf-8")


if __name__ == "__main__":
    main()
