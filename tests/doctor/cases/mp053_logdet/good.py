"""The log-determinant of a matrix product has no half kernel."""
import torch
from torch import nn

torch.manual_seed(0)


class Whiten(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.root = nn.Parameter(torch.eye(d) + 0.1 * torch.randn(d, d))

    def forward(self, x):
        cov = self.root @ self.root.t()
        volume = torch.linalg.slogdet(cov.float()).logabsdet
        return x @ self.root + volume


net = nn.Sequential(Whiten(5), nn.Linear(5, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(20):
    x = torch.randn(12, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :2].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
