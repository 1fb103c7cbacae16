"""A checkpoint with everything in it, the scaler too."""
import io

import torch
from torch import nn

torch.manual_seed(0)


def build():
    net = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1))
    return net, torch.optim.AdamW(net.parameters(), lr=1e-3), torch.amp.GradScaler("cpu")


def train(net, opt, scaler, steps=25):
    for _ in range(steps):
        x = torch.randn(16, 10)
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(x)
        loss = nn.functional.mse_loss(out.float(), 60 * x[:, :1])
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    return loss.item(), scaler.get_scale()


parts = build()
print(train(*parts))
file = io.BytesIO()
torch.save([part.state_dict() for part in parts], file)
file.seek(0)
new = build()
for part, state in zip(new, torch.load(file)):
    part.load_state_dict(state)
print(train(*new))
