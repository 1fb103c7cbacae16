"""A padding bias of -1e6 is filled into FP16 scores."""
import torch
from torch import nn

torch.manual_seed(0)
NEGATIVE = -1e6


class Pool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.score = nn.Linear(d, 1)

    def forward(self, x, pad):
        s = self.score(x).squeeze(-1)
        s = s.masked_fill(pad, NEGATIVE)  # FAULT
        return (s.softmax(-1).unsqueeze(-1) * x).sum(1)


pool, head = Pool(8), nn.Linear(8, 2)
opt = torch.optim.Adam([*pool.parameters(), *head.parameters()], lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for _ in range(20):
    x = torch.randn(6, 9, 8)
    pad = torch.arange(9)[None] >= torch.randint(1, 9, (6, 1))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(pool(x, pad)), x[:, 0, :2].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(loss.item())
