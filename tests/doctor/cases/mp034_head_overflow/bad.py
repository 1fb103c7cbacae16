"""Only the language-model head overflows FP16: its logits are above 65504 and the rest is small."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class LM(nn.Module):
    def __init__(self, vocab=50, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        with torch.no_grad():
            self.lm_head.weight *= 300000.0

    def forward(self, ids):
        h = self.embed(ids)
        h = h + self.block(h)
        return self.lm_head(h).float() / 1e4  # FAULT


lm = LM()
opt = torch.optim.AdamW(lm.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for _ in range(25):
    ids = torch.randint(0, 50, (4, 12))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = lm(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
