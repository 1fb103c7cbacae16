"""A penalty on gradients that carry the scale: the first ones overflow, so its loss is infinite until the scale has come down."""
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 48), nn.SiLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(critic.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)
for _ in range(80):
    x = torch.randn(64, 3)
    near = x.clone().requires_grad_(True)
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(near).float()
    (scaled,) = torch.autograd.grad(scaler.scale(score.sum()), near, create_graph=True)
    slope = scaled / scaler.get_scale()
    loss = nn.functional.mse_loss(score, x.sum(1, keepdim=True)) + 0.1 * slope.pow(2).sum(1).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
