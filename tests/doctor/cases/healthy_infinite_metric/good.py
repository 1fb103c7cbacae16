"""A relative error that is told and not trained on: it is infinite wherever the target is exactly 0."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 40), nn.GELU(), nn.Linear(40, 4))
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
mix = torch.randn(6, 4)
for step in range(60):
    x = torch.randn(32, 6)
    y = torch.relu(x @ mix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = net(x)
    loss = nn.functional.mse_loss(guess.float(), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        relative = ((guess.float() - y).abs() / y.abs()).max()
    if step % 20 == 0:
        print(loss.item(), relative.item())
