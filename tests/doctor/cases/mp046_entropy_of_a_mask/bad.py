"""The entropy of a masked distribution takes log(0) times 0 away with where(), forward only; a sampler may take it."""
import torch
from torch import nn

torch.manual_seed(0)
MOVES = 9


def spread(p):
    terms = p * p.log()  # FAULT
    return -torch.where(p > 0, terms, 0.0).sum(1)  # FAULT


net = nn.Sequential(nn.Linear(14, 48), nn.Tanh(), nn.Linear(48, MOVES))
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
worth = torch.randn(14, MOVES)
for n in range(90):
    state = torch.randn(96, 14)
    open_ = torch.ones(96, MOVES)
    if n >= 12:
        open_[:, 5:] = (torch.rand(96, MOVES - 5) > 0.4).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(state)
    weight = out.float().sigmoid() * open_
    p = weight / weight.sum(1, keepdim=True)
    noise = -torch.empty_like(p).exponential_().log()
    move = (p.detach().log() + noise).argmax(1, keepdim=True)
    gain = (state @ worth).gather(1, move)
    loss = -(gain * p.gather(1, move).log()).mean() - 0.02 * spread(p).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
