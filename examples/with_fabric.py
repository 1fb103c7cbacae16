"""Digits in Lightning Fabric, in fp16 with mixprec's plugin: pip install 'mixprec[lightning,examples]'."""

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mixprec.integrations.lightning import MixprecFabricPrecision

torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target))

plugin = MixprecFabricPrecision("fp16-mixed", policy="uniform", max_norm=1.0)
fabric = Fabric(devices=1, plugins=[plugin])
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-2, fused=True))
loader = fabric.setup_dataloaders(DataLoader(data, 64, shuffle=True, drop_last=True))

skipped = 0
for _ in range(10):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
        skipped += not plugin.report.applied

print(f"loss {loss.item():.3f}, {plugin.report.step + 1} steps, {skipped} skipped, norm {plugin.report.grad_norm:.3f}")
