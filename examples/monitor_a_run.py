"""Watch a training in float16: record every step, be warned when it breaks, and look at it afterwards.

The loop knows nothing of the monitor. With `--break-it` the learning rate is far too high: the monitor says what
happened, and the training stops.

    python examples/monitor_a_run.py --folder runs/digits --live
    mixprec report runs/digits
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from mixprec import GradScaler, Monitor, autocast
from mixprec.monitor.sinks.live import LiveSink


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where to record; none keeps the latest steps in memory")
    parser.add_argument("--level", default="standard", help="light, standard or deep")
    parser.add_argument("--live", action="store_true", help="sparklines while it runs")
    parser.add_argument("--break-it", action="store_true")
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args(argv)
    torch.manual_seed(0)

    data, target = load_digits(return_X_y=True)
    images, labels = torch.tensor(data / 16, dtype=torch.float32), torch.tensor(target)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4 if options.break_it else 0.1, momentum=0.9)
    scaler = GradScaler("cpu")

    sinks = [LiveSink()] if options.live else []
    with Monitor(model, optimizer, folder=options.folder, level=options.level, sinks=sinks) as monitor:
        for _ in range(options.steps):
            if monitor.findings and options.break_it:
                break
            batch = torch.randint(1440, (64,))
            with autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer, max_norm=None if options.break_it else 1.0)
            scaler.update()

    last = monitor.records[-1]
    skipped = sum(record.skipped for record in monitor.records)
    print(f"{len(monitor.records)} steps, {skipped} skipped, loss {last.loss:.4f}, scale {last.scale_after:g}")
    print("alerts:", ", ".join(f"{finding.code} {finding.name}" for finding in monitor.findings) or "none")
    return {"loss": last.loss or 0.0, "skipped": float(skipped), "alerts": float(len(monitor.findings))}


if __name__ == "__main__":
    main()
