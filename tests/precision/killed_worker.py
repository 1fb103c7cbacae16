"""A run that saves after every micro-batch and is killed where it is told: `killed_worker.py FOLDER [MOMENT AT]`.

MOMENT is `forward`, `backward`, `step` or `save`, AT the micro-batch, from 0, in which SIGKILL comes.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from mixprec import Precision

MICRO_BATCHES = 12


def train(folder: Path, moment: str, at: int) -> None:
    """Resumes from the checkpoint if there is one; saves the final weights as `final.pt`."""

    def maybe_die(now: str, index: int) -> None:
        if (now, index) == (moment, at):
            os.kill(os.getpid(), signal.SIGKILL)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    precision = Precision("fp16-master", optimizer, model=model, accumulate=3, max_norm=0.5, scheduler=schedule)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "precision": precision}
    checkpoint, first = folder / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])
        first = state["next"]

    for index in range(first, MICRO_BATCHES):
        x, y = torch.randn(16, 8), torch.randn(16, 4)
        with precision.autocast():
            hidden = model[0](x)
            hidden.register_hook(lambda gradient, index=index: maybe_die("backward", index))
            loss = F.mse_loss(model[1:](hidden).float(), y)
        maybe_die("forward", index)
        precision.backward(loss, weight=16)
        maybe_die("step", index)
        precision.step()
        states = {name: part.state_dict() for name, part in parts.items()}
        partial = folder / "partial.pt"
        torch.save({**states, "random": torch.get_rng_state(), "next": index + 1}, partial)
        maybe_die("save", index)
        partial.replace(checkpoint)
    torch.save([p.detach() for p in model.parameters()], folder / "final.pt")


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
