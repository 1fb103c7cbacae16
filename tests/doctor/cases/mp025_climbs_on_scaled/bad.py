"""Sharpness-aware steps under a scaler: the weights climb along gradients that still carry the scale."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2))
weights = list(net.parameters())
opt = torch.optim.SGD(weights, lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)


def loss_of(x):
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    return nn.functional.cross_entropy(out.float(), x[:, :2].argmax(1))


for _ in range(40):
    x = torch.randn(32, 10)
    opt.zero_grad()
    scaler.scale(loss_of(x)).backward()
    with torch.no_grad():
        ascent = [0.05 * p.grad for p in weights]  # FAULT
        for p, a in zip(weights, ascent):
            p.add_(a)  # FAULT
    opt.zero_grad()
    scaler.scale(loss_of(x)).backward()  # FAULT
    with torch.no_grad():
        for p, a in zip(weights, ascent):
            p.sub_(a)
    scaler.step(opt)
    scaler.update()
print(loss_of(x).item(), scaler.get_scale())
