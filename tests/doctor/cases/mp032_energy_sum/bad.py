"""An energy term sums 200000 FP16 values."""
import torch
from torch import nn

torch.manual_seed(0)


class Smooth(nn.Module):
    def forward(self, field):
        return field.sigmoid().sum() / field.numel()  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.out = nn.Conv2d(4, 1, 3, padding=1)
        self.energy = Smooth()

    def forward(self, image):
        field = self.out(self.conv(image).relu())
        return field, self.energy(field)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(12):
    image = torch.rand(1, 1, 450, 450)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        field, energy = net(image)
    loss = (field.float() - image).abs().mean() + energy.float()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
