"""The weights come back from the best file, and so does the optimizer."""
import io

import torch
from torch import nn


def build():
    net = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 2))
    return net, torch.optim.Adam(net.parameters(), lr=3e-3)


def train(net, opt, start, stop):
    for n in range(start, stop):
        torch.manual_seed(n)
        x = torch.randn(32, 10)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(x)
        loss = (out.float() - x[:, :2]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def kept(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


torch.manual_seed(0)
first, its = build()
train(first, its, 0, 12)
best, before = kept(first.state_dict()), kept(its.state_dict())
its.state[first[0].weight]["exp_avg_sq"][3] = float("nan")  # stands for the crash
last = kept(its.state_dict())

net, opt = build()
net.load_state_dict(best)
opt.load_state_dict(before)
print(train(net, opt, 12, 40))
