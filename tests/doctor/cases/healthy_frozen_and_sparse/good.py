"""A frozen half-precision body, a trained FP32 head, and gradients that are mostly zero because of ReLU."""
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(12, 64), nn.ReLU()).to(torch.bfloat16).requires_grad_(False)
head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3))
with torch.no_grad():
    head[0].bias -= 1.0
opt = torch.optim.AdamW(head.parameters(), lr=2e-3)
for _ in range(50):
    x = torch.randn(24, 12)
    with torch.no_grad():
        h = body(x.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = head(h)
    loss = nn.functional.cross_entropy(logits.float(), x[:, :3].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
