"""Only the first batch goes through scale(): later ones are divided by a scale they never carried."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)
model = nn.Sequential(nn.Linear(10, 40), nn.GELU(), nn.Linear(40, 1))
optim = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)


def warm(loss):
    scaler.scale(loss).backward()


def usual(loss):
    scaler.scale(loss).backward()


for n in range(60):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(model(x), x[:, :1] * x[:, 1:2])
    optim.zero_grad()
    (warm if n == 0 else usual)(loss)
    scaler.step(optim)
    scaler.update()
print("loss", loss.item())
