"""A loss weight of 1/0 for the first 180 steps brings the scale to nothing; then clean gradients become NaN."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")


def weight(n):
    ramp = torch.tensor(max(0.0, n - 180.0))
    return 1.0 / ramp


for n in range(195):
    x = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :2].argmax(1)) * weight(n)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)  # FAULT
    scaler.update()
print(loss.item(), scaler.get_scale())
