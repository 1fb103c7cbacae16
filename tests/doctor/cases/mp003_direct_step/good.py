"""The optimizer is stepped directly although the gradients carry the loss scale."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def make():
    return nn.Sequential(nn.Conv1d(3, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 4))


net = make()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def one_step(wave, label):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(wave), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


for _ in range(40):
    label = torch.randint(0, 4, (16,))
    wave = torch.randn(16, 3, 20) + label.view(-1, 1, 1) * 0.4
    loss = one_step(wave, label)
print("loss", loss.item())
