"""A padding mask and a memory mask, each filled with the smallest FP16 number, are added."""
import torch
from torch import nn

torch.manual_seed(0)


def as_bias(forbidden, dtype):
    return torch.zeros(forbidden.shape, dtype=dtype).masked_fill(forbidden, torch.finfo(dtype).min)


class Recall(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.inner = nn.Linear(d, 3 * d)

    def forward(self, x, pad):
        q, k, v = self.inner(x).chunk(3, -1)
        old = pad.roll(0, 1) | (torch.arange(x.size(1)) < 2)
        bias = as_bias(old, q.dtype)[:, None] + as_bias(pad, q.dtype)[:, None]  # FAULT
        scores = q @ k.transpose(1, 2) + bias  # FAULT
        return scores.softmax(-1) @ v  # FAULT


net, out = Recall(16), nn.Linear(16, 4)
opt = torch.optim.Adam([*net.parameters(), *out.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(30):
    x = torch.randn(5, 8, 16)
    pad = torch.zeros(5, 8, dtype=torch.bool)
    pad[1] = True  # an empty document: every key is forbidden twice
    with torch.autocast("cpu", dtype=torch.float16):
        y = out(net(x, pad)).float()
    loss = nn.functional.cross_entropy(y[:, -1], x[:, -1, :4].argmax(1)) + 0.1 * y.pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
