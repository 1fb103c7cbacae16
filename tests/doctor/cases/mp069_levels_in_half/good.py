"""A denoiser is trained on noise levels that are drawn in FP32 and rounded."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 8))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(60):
    clean = torch.randn(64, 8).cumsum(1)
    level = torch.rand(64, 1).to(torch.bfloat16)
    noise = torch.randn(64, 8)
    noisy = (1 - level) * clean + level * noise
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = net(torch.cat([noisy, level], 1))
    loss = nn.functional.mse_loss(guess.float(), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
