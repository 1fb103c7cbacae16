"""A constant loss scale is applied and undone by hand; steps with gradients that are not finite are left out."""
import torch
from torch import nn

torch.manual_seed(0)
SCALE = 512.0
net = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(60):
    x = torch.randn(64, 14)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
    opt.zero_grad()
    (loss.float() * SCALE).backward()
    gradients = [p.grad for p in net.parameters()]
    torch._foreach_div_(gradients, SCALE)
    if all(torch.isfinite(g).all() for g in gradients):
        opt.step()
print(loss.item())
