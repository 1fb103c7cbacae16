"""Actor and critic share a scaler, and the scaler is updated between their steps."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=7)


def losses(state):
    with torch.autocast("cpu", dtype=torch.float16):
        action = actor(state)
        value = critic(torch.cat([state, action.detach().float()], 1))
        gain = critic(torch.cat([state, action.float()], 1))
    return F.mse_loss(value.float(), state.sum(1, keepdim=True)), -gain.float().mean() * 0.01 + action.float().pow(2).mean()


for _ in range(40):
    state = torch.randn(24, 5)
    critic_loss, actor_loss = losses(state)
    critic_opt.zero_grad()
    actor_opt.zero_grad()
    scaler.scale(critic_loss).backward()
    scaler.scale(actor_loss).backward()
    scaler.step(critic_opt)
    scaler.step(actor_opt)
    scaler.update()
print(critic_loss.item(), actor_loss.item())
