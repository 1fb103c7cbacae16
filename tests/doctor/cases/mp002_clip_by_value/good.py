"""Gradients are cut to [-0.1, 0.1] by value while they carry the loss scale."""
import torch
from torch import nn

torch.manual_seed(4)
policy = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 2))
opt = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
amp = torch.amp.GradScaler("cpu", init_scale=2.0**14)
for episode in range(60):
    state = torch.randn(40, 6)
    target = state[:, :2] * state[:, 2:4]
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        action = policy(state)
    error = nn.functional.smooth_l1_loss(action.float(), target)
    amp.scale(error).backward()
    amp.unscale_(opt)
    nn.utils.clip_grad_value_(policy.parameters(), 0.1)
    amp.step(opt)
    amp.update()
print("error", float(error))
