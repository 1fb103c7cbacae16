"""A sentence without a single valid token: softmax over -inf only, NaN in every dtype."""
import torch
from torch import nn

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.query = nn.Parameter(torch.randn(12))
        self.out = nn.Linear(12, 2)

    def forward(self, ids):
        x = self.embed(ids)
        scores = (x @ self.query).float().masked_fill(ids == 0, float("-inf"))  # FAULT
        weight = scores.softmax(dim=1)  # FAULT
        return self.out((weight.unsqueeze(-1) * x).sum(1))


def batch(n):
    ids = torch.randint(1, 30, (8, 7))
    ids[:, 5:] = 0
    if n % 4 == 2:
        ids[3] = 0 if n else ids[3]
    return ids


net = Reader()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for n in range(30):
    ids = batch(n)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(ids).float(), ids[:, 0] % 2)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
