"""A gradient penalty is computed on the scaled output and added to the loss without undoing the scale."""
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(6, 32), nn.Softplus(), nn.Linear(32, 1))
opt = torch.optim.Adam(critic.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)


def penalty(x):
    x = x.requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(x).float().sum()
    (grad,) = torch.autograd.grad(scaler.scale(score), x, create_graph=True)  # FAULT
    return ((grad.norm(dim=1) - 1) ** 2).mean()  # FAULT


for _ in range(30):
    real, fake = torch.randn(16, 6) + 1, torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = critic(fake).float().mean() - critic(real).float().mean()
    loss = loss + 10 * penalty(torch.lerp(real, fake, torch.rand(16, 1)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
