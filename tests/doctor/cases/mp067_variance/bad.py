"""A variance as mean square minus squared mean, in FP16: it comes out negative, and its root is NaN."""
import torch
from torch import nn

torch.manual_seed(0)


class Contrast(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean  # FAULT
        return (x - mean) / (variance + 1e-3).sqrt()  # FAULT


net = nn.Sequential(nn.Linear(6, 32), Contrast(), nn.Linear(32, 2))
with torch.no_grad():
    net[0].bias += 30.0
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(30):
    x = 0.3 * torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
