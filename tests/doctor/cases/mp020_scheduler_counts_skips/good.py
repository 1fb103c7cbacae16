"""Warm-up is stepped once per iteration, also when the scaler left the step out."""
import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Warmup:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
        self.plan = torch.optim.lr_scheduler.LinearLR(self.opt, start_factor=0.01, total_iters=30)
        self.scaler = torch.amp.GradScaler("cpu")

    def step(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.net(x)
        loss = F.mse_loss(out.float(), 150 * x[:, :1])
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        before = self.scaler.get_scale()
        self.scaler.step(self.opt)
        self.scaler.update()
        if self.scaler.get_scale() >= before:
            self.plan.step()
        return loss.item()


run = Warmup(nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 1)))
for _ in range(50):
    loss = run.step(torch.randn(64, 40))
print(loss, run.plan.get_last_lr())
