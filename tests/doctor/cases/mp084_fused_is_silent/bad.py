"""FP16 weights, a scaler and a fused AdamW: nothing is raised, although FP16 gradients cannot be unscaled."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
net.half()  # FAULT
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-4, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(30):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x).float(), x[:, :2].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)  # FAULT
    scaler.update()
print(loss.item())
