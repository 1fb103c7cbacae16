"""FP32 first and FP16 after it, in one process, each with its own optimizer."""
import torch
from torch import nn


def train(amp):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=amp)
    for _ in range(60):
        x = torch.randn(32, 8)
        with torch.autocast("cpu", dtype=torch.float16, enabled=amp):
            loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return loss.item()


print(train(False), train(True))
