"""The loss of an epoch is summed in BF16: at its end the total is too coarse for what is added."""
import torch
from torch import nn

torch.manual_seed(0)
data = torch.randn(620, 10)
net = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 10))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


def epoch():
    total = torch.zeros((), dtype=torch.bfloat16)
    for part in data.split(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(net(part), part.flip(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach().bfloat16()  # FAULT
    return total


for _ in range(2):
    total = epoch()
    with torch.no_grad():
        print(total.item(), nn.functional.mse_loss(net(data), data.flip(1)).item())
