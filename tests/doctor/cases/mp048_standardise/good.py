"""Advantages are standardised in FP16 with an epsilon of 1e-10, which is zero in FP16."""
import torch
from torch import nn

torch.manual_seed(0)
EPS = 1e-3


class Standard(nn.Module):
    def __init__(self, eps=EPS):
        super().__init__()
        self.eps = eps

    def forward(self, v):
        centred = v - v.mean(1, keepdim=True)
        width = centred.abs().mean(1, keepdim=True)
        return centred / (width + self.eps)


net, norm = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1)), Standard()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for n in range(40):
    x = torch.randn(6, 5, 6)
    if n % 3 == 2:
        x[1] = x[1, :1]  # a group of equal samples
    with torch.autocast("cpu", dtype=torch.float16):
        advantage = norm(net(x).squeeze(-1))
    loss = (advantage.float() - x[..., 0]).pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
