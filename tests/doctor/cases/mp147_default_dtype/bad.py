"""autocast without a dtype: on CPU that is BF16, and the rest of the script expects FP16."""
import torch
from torch import nn

torch.manual_seed(0)


class Settings:
    precision = "fp16"
    device = "cpu"


def region(settings):
    return torch.autocast(settings.device)  # FAULT


def scaler_for(settings):
    return torch.amp.GradScaler(settings.device, enabled=settings.precision == "fp16")  # FAULT


net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 5))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = scaler_for(Settings)
for _ in range(30):
    x = torch.randn(12, 5)
    with region(Settings):  # FAULT
        loss = nn.functional.cross_entropy(net(x), x.argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
