"""Keep the evidence of a step that fails, run that one step again, and name the op that failed.

Scores grow from step to step until a hand-written square overflows float16. The watch saves that step; the replay runs
it twice, bit for bit, and once op by op.

    python examples/replay_a_step.py --folder incidents
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from mixprec import GradScaler, autocast
from mixprec.monitor.incident import IncidentStore, IncidentWatch, load_incidents
from mixprec.monitor.replay import MicroBatch, replay, source_line


class Scores(nn.Module):
    """A classifier with a squashing function written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor, gain: float) -> torch.Tensor:
        hidden = self.body(images) * gain
        size = hidden * hidden
        return self.head(hidden.sign() * size / (1 + size))


def main(argv: list[str] | None = None) -> dict[str, object]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="incidents", help="where to keep them")
    options = parser.parse_args(argv)
    torch.manual_seed(0)

    data, target = load_digits(return_X_y=True)
    images, labels = torch.tensor(data / 16, dtype=torch.float32), torch.tensor(target)
    model = Scores()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=256.0)

    def forward_and_backward(rows: torch.Tensor, gain: float) -> torch.Tensor:
        with autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(images[rows], gain).float(), labels[rows])
        scaler.scale(loss).backward()
        return loss

    with IncidentWatch(IncidentStore(options.folder, max_incidents=3)) as watch:
        for step in range(12):
            rows = torch.arange(step * 32, step * 32 + 32)
            watch.keep(rows)
            optimizer.zero_grad()
            forward_and_backward(rows, 2.0**step)
            scaler.step(optimizer)
            scaler.update()

    incident = load_incidents(options.folder)[0]

    def again(micro: MicroBatch) -> torch.Tensor:
        return forward_and_backward(micro.loaded, micro.args[1])

    found = replay(incident, model, again, optimizer, scaler=scaler)
    assert found.traced is not None
    first = found.traced.origin.first
    assert first is not None
    line = source_line(first.location)
    print(f"step {incident.step} failed; replayed bit for bit: {found.repeats and found.exact}")
    print(f"{first.op} in {first.phase}, float32 would have given {first.exact[0].amax:.3g}: {line}")
    return {"step": incident.step, "exact": found.exact, "repeats": found.repeats, "op": first.op, "line": line}


if __name__ == "__main__":
    main()
