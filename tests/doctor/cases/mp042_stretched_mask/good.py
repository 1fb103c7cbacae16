"""Padded positions are pushed down by the smallest number of their dtype."""
import torch
from torch import nn

torch.manual_seed(0)


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(40, 24)
        self.weigh = nn.Linear(24, 1)
        self.out = nn.Linear(24, 4)

    def forward(self, ids):
        words = self.word(ids)
        scores = self.weigh(words).squeeze(-1)
        keep = (ids != 0).to(scores.dtype)
        scores = scores.masked_fill(keep == 0, torch.finfo(scores.dtype).min)
        share = torch.softmax(scores, -1)
        return self.out((share.unsqueeze(-1) * words).sum(1))


net = Pool()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(40):
    ids = torch.randint(1, 40, (16, 10))
    ids[:, 7:] = 0
    ids[3] = 0
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(ids)
    loss = nn.functional.cross_entropy(out.float(), ids[:, 0] % 4)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
