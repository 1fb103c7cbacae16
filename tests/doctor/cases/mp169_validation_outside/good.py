"""The validation loss is taken after the region has ended: FP16 squares overflow there."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 1)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)


def validate():
    x = torch.randn(64, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    return nn.functional.mse_loss(out.float(), 600 * x[:, :1]).item()


for n in range(30):
    x = torch.randn(32, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x), 600 * x[:, :1]) * 1e-3
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if n % 10 == 9:
        print("validation", validate())
