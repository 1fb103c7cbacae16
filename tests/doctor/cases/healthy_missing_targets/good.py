"""Targets that are missing are NaN; loss and metric leave them out, the loss before anything is computed of them."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 40), nn.GELU(), nn.Linear(40, 4))
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
mix = torch.randn(6, 4)
for step in range(60):
    x = torch.randn(32, 6)
    y = torch.relu(x @ mix)
    y[torch.rand(32, 4) < 0.3] = float("nan")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = net(x)
    known = ~torch.isnan(y)
    gap = torch.where(known, guess.float(), 0.0) - torch.where(known, y, 0.0)
    loss = gap.square().sum() / known.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        relative = ((guess.float() - y).abs() / y.abs())[known].max()
    if step % 20 == 0:
        print(loss.item(), relative.item())
