"""A hand-made gradient normaliser divides by a norm of zero after unscale_ has checked the gradients."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.ModuleDict({"body": nn.Linear(8, 16), "gate": nn.Linear(16, 1), "aux": nn.Linear(16, 1)})
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def normalise(parameters):
    for p in parameters:
        if p.grad is not None:
            p.grad /= p.grad.norm() + 1e-6


for i in range(30):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = torch.relu(net["body"](x))
        out = net["gate"](hidden) + net["aux"](hidden) * float(i < 5)
        loss = nn.functional.mse_loss(out, x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    normalise(net.parameters())
    scaler.step(opt)
    scaler.update()
print("loss", loss.item())
