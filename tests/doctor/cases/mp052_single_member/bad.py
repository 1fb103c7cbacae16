"""Each group is measured by its spread, and at times a group has one member."""
import torch
from torch import nn

torch.manual_seed(0)
groups = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
encoder = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
opt = torch.optim.Adam(encoder.parameters(), lr=2e-3)
for step in range(40):
    x = torch.randn(8, 6)
    if step == 13:
        groups[6] = 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = encoder(x)
    z = z.float()
    spreads = [z[groups == g].std(0) for g in range(3)]  # FAULT
    loss = torch.stack(spreads).sub(1.0).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
