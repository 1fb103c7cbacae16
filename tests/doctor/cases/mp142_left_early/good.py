"""A batch with a large norm leaves the step function before step() and update()."""
import torch
from torch import nn

torch.manual_seed(0)


class Careful:
    limit = 8.0

    def __init__(self):
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def step(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.l1_loss(self.net(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        if norm > self.limit:
            self.scaler.update()
            return None
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


loop = Careful()
for n in range(30):
    x = torch.randn(10, 8) * (60 if n == 11 else 1)
    print(n, loop.step(x, x[:, :1]))
