"""A causal mask of -inf: every row keeps itself, and softmax takes the infinities away."""
import torch
from torch import nn

torch.manual_seed(0)


class Causal(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(20, d), nn.Linear(d, 3 * d), nn.Linear(d, 20)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        future = torch.full((ids.size(1), ids.size(1)), float("-inf")).triu(1)
        scores = q @ k.transpose(1, 2) / 4 + future
        return self.out(x + scores.softmax(-1) @ v)


net = Causal()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(40):
    ids = torch.randint(0, 20, (8, 10))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
print(loss.item())
