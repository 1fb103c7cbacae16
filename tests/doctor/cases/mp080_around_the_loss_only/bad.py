"""The region covers the loss and not the model: no matrix product runs in FP16."""
import torch
from torch import nn

torch.manual_seed(0)


class Loop:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(10, 50), nn.SiLU(), nn.Linear(50, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu")

    def step(self, x):
        self.opt.zero_grad()
        y = self.net(x)
        with torch.autocast("cpu", dtype=torch.float16):  # FAULT
            loss = nn.functional.mse_loss(y, x[:, :1])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


loop = Loop()
print([loop.step(torch.randn(16, 10)) for _ in range(30)][-1])
