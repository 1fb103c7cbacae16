"""BF16 autocast has the range of FP32: a scaler only costs time and skips steps."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
DTYPE = torch.bfloat16
net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", enabled=DTYPE is torch.float16)
for _ in range(40):
    y = torch.randint(0, 5, (16,))
    x = torch.randn(16, 1, 8, 8) + y.view(-1, 1, 1, 1) * 0.5
    with torch.autocast("cpu", dtype=DTYPE):
        loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
