"""The autocast object is made and forgotten: everything runs in FP32 under a scaler."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")


def forward(x, y):
    torch.autocast("cpu", dtype=torch.float16)  # FAULT
    loss = nn.functional.cross_entropy(net(x), y)
    return loss


for _ in range(30):
    x = torch.randn(20, 16)
    loss = forward(x, x[:, :4].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
