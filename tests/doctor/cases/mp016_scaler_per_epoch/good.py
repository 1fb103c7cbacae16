"""A factory that builds everything anew also builds a scaler in every epoch."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(30, 90), nn.ReLU(), nn.Linear(90, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
batches = [torch.randn(32, 30) for _ in range(7)]
shared = torch.amp.GradScaler("cpu")


class Epoch:
    def __init__(self, number):
        self.number = number
        self.scaler = shared

    def run(self):
        for x in batches:
            with torch.autocast("cpu", dtype=torch.float16):
                out = net(x)
            loss = F.mse_loss(out.float(), 200 * x[:, :1])
            opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(opt)
            self.scaler.update()
        print(self.number, loss.item(), self.scaler.get_scale())


for n in range(8):
    Epoch(n).run()
