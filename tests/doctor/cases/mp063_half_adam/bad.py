"""The whole network is FP16 and the Adam epsilon is zero there: one step makes every weight NaN."""
import torch
from torch import nn

torch.manual_seed(0)


def network():
    return nn.Sequential(nn.Linear(9, 36), nn.Tanh(), nn.Linear(36, 9))


def optimizer_for(net, name):
    kinds = {"nadam": torch.optim.NAdam, "adamw": torch.optim.AdamW}
    return kinds[name](net.parameters(), lr=1e-3)  # FAULT


net = network().half()  # FAULT
opt = optimizer_for(net, "adamw")  # FAULT
for _ in range(30):
    x = torch.randn(20, 9)
    loss = nn.functional.mse_loss(net(x.half()).float(), x.flip(1))
    opt.zero_grad()
    loss.backward()
    opt.step()  # FAULT
print(loss.item())
