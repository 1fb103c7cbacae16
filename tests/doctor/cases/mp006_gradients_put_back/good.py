"""Two networks: gradients of the first are put aside and written back, with one update after both steps."""
import torch
from torch import nn

torch.manual_seed(0)
maker = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt_m = torch.optim.Adam(maker.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=15)
for _ in range(80):
    real, noise = torch.randn(64, 4) + 2, torch.randn(64, 8)
    opt_m.zero_grad()
    opt_c.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = maker(noise)
        margin = critic(fake.detach()) - critic(real)
    scaler.scale(nn.functional.softplus(margin.float()).mean()).backward()
    aside = [p.grad.clone() for p in critic.parameters()]
    with torch.autocast("cpu", dtype=torch.float16):
        verdict = critic(fake)
    scaler.scale(nn.functional.softplus(-verdict.float()).mean()).backward()
    for p, g in zip(critic.parameters(), aside):
        p.grad = g
    scaler.step(opt_c)
    scaler.step(opt_m)
    scaler.update()
print(verdict.float().mean().item(), scaler.get_scale())
