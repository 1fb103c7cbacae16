"""The scale may change inside an accumulation window."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)


class Loop:
    window = 4

    def __init__(self):
        self.net = nn.Linear(20, 3)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler("cpu")
        self.seen = 0

    def micro(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(self.net(x), x[:, :3].argmin(1)) / self.window
        self.scaler.scale(loss).backward()
        self.seen += 1
        if self.seen % self.window == 0:
            self.scaler.step(self.opt)
            self.opt.zero_grad()
            self.scaler.update()
        return loss


loop = Loop()
for _ in range(24):
    print(float(loop.micro(torch.randn(8, 20))))
