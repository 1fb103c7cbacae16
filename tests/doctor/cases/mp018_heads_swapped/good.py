"""Two heads have a scaler each, and each is stepped through its own."""
import torch
from torch import nn

torch.manual_seed(0)
heads = [nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1)) for _ in range(2)]
opts = [torch.optim.SGD(head.parameters(), lr=0.02) for head in heads]
scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (2.0**12, 2.0**7)]
for _ in range(40):
    x = torch.randn(32, 6)
    for head, opt, scaler in zip(heads, opts, scalers):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = head(x)
        scaler.scale(nn.functional.mse_loss(out.float(), x[:, :1])).backward()
    for opt, scaler in zip(opts, scalers):
        scaler.step(opt)
        scaler.update()
print(out.float().mean().item(), [scaler.get_scale() for scaler in scalers])
