"""A small network learns which of 16 groups a noisy point belongs to, in FP16 mixed precision."""

import torch
from torch import nn

torch.manual_seed(0)
centres = torch.randn(16, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = torch.amp.GradScaler("cpu")

for step in range(40):
    targets = torch.randint(16, (64,))
    inputs = centres[targets] + torch.randn(64, 32)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.3f}")
