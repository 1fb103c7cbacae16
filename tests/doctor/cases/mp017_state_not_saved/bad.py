"""A resume restores model and optimizer, and starts with a new scaler."""
import io

import torch
import torch.nn.functional as F
from torch import nn


class Run:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(20, 60), nn.Tanh(), nn.Linear(60, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-5)
        self.scaler = torch.amp.GradScaler("cpu")
        self.epoch = 0

    def epoch_(self):
        for _ in range(12):
            x = torch.randn(32, 20)
            with torch.autocast("cpu", dtype=torch.float16):
                out = self.net(x)
            loss = F.mse_loss(out.float(), 300 * x[:, :1])
            self.opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
        self.epoch += 1
        print(self.epoch, loss.item(), self.scaler.get_scale())

    def save(self, file):
        state = {"net": self.net.state_dict(), "opt": self.opt.state_dict(), "epoch": self.epoch}  # FAULT
        torch.save(state, file)  # FAULT

    def load(self, file):
        state = torch.load(file)  # FAULT
        self.net.load_state_dict(state["net"])  # FAULT
        self.opt.load_state_dict(state["opt"])  # FAULT
        self.epoch = state["epoch"]


file = io.BytesIO()
first = Run()
for _ in range(3):
    first.epoch_()
first.save(file)
file.seek(0)
second = Run()  # FAULT
second.load(file)  # FAULT
for _ in range(3):
    second.epoch_()
