"""A run without AMP saved the empty state of its disabled scaler; a run with AMP loads it."""
import torch
from torch import nn


def scaler_for(precision):
    return torch.amp.GradScaler("cpu", enabled=precision == "16")


def train(net, opt, scaler, dtype):
    for _ in range(10):
        x = torch.randn(8, 4)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is torch.float16):
            loss = nn.functional.mse_loss(net(x), x)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return loss.item()


torch.manual_seed(0)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
old = scaler_for("32")
print(train(net, opt, old, torch.float32))
saved = old.state_dict()
new = scaler_for("16")
new.load_state_dict(saved)  # FAULT
print(train(net, opt, new, torch.float16))
