"""A moving average is advanced after every call of a fused step, also when the step was skipped."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu")
done = 0


def count(optimizer, args, kwargs):
    global done
    done += 1


for _ in range(40):
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = F.mse_loss(out.float(), 400 * x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    done += scaler.get_scale() >= before
print("steps done", done)
