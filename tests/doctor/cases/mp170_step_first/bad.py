"""The step part stands before the backward part; a resume enters it with a new scaler."""
import torch
from torch import nn

torch.manual_seed(0)


class Accumulate:
    def __init__(self, start=0):
        self.net = nn.Linear(6, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.start = start

    def run(self, until):
        for n in range(self.start, until):
            if n > 0 and n % 2 == 0:  # FAULT
                self.scaler.step(self.opt)  # FAULT
                self.scaler.update()  # FAULT
                self.opt.zero_grad()
            x = torch.randn(8, 6)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(self.net(x), x[:, :2].argmax(1)) / 2
            self.scaler.scale(loss).backward()
        print(until, loss.item())


Accumulate().run(6)
Accumulate(start=6).run(12)  # FAULT
