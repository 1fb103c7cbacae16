"""Digits in Hugging Face Accelerate, in fp16 with mixprec's scaler: pip install 'mixprec[accelerate,examples]'."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mixprec.integrations.accelerate import MixprecAccelerator

torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target))

accelerator = MixprecAccelerator(mixed_precision="fp16", cpu=not torch.cuda.is_available(), policy="uniform")
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
model, optimizer, loader, schedule = accelerator.prepare(
    model, optimizer, DataLoader(data, 64, shuffle=True, drop_last=True), schedule
)

skipped = 0
for _ in range(10):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()  # stands still where the step was skipped
        optimizer.zero_grad()
        skipped += optimizer.step_was_skipped

report = accelerator.report(optimizer)
print(f"loss {loss.item():.3f}, {report.step + 1} steps, {skipped} skipped, loss scale {report.scale_after:g}")
