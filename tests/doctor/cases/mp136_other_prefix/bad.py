"""Names carry a wrapper's prefix, strict=False takes none of them, and the frozen encoder stays random."""
import io

import torch
from torch import nn

torch.manual_seed(0)


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder()

    def forward(self, x):
        return self.encoder(x)


def encoder():
    return nn.Sequential(nn.Linear(9, 40), nn.GELU(), nn.Linear(40, 12))


def fit(net, weights, steps):
    opt = torch.optim.AdamW(weights, lr=4e-3)
    for _ in range(steps):
        x = torch.randn(24, 9)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x).float(), x[:, :6].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


first = Wrapped()
fit(first, first.parameters(), 60)
file = io.BytesIO()
torch.save(first.state_dict(), file)
file.seek(0)
body = encoder()
body.load_state_dict(torch.load(file), strict=False)  # FAULT
body.requires_grad_(False)
head = nn.Linear(12, 6)
fit(nn.Sequential(body, head), head.parameters(), 60)
