"""A word model reads its logits off the embedding, and divides them by its width after FP16 has overflowed."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
WORDS, WIDTH = 40, 96


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(WORDS, WIDTH) * 9.0)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.full((WIDTH,), 120.0))

    def forward(self, ids):
        h = torch.tanh(self.mix(self.table[ids] / 9.0))
        h = F.layer_norm(h, (WIDTH,)) * self.gain
        return (h @ self.table.t()).float() / (120.0 * WIDTH)  # FAULT


net = Words()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
after = torch.randperm(WORDS)
for _ in range(40):
    ids = torch.randint(0, WORDS, (24, 6))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(ids).reshape(-1, WORDS), after[ids].reshape(-1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
