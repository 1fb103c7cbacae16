"""A small head in FP32 is tuned slowly beside a body in FP32."""
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64))
head = nn.Linear(64, 4)
opt = torch.optim.AdamW([{"params": body.parameters()}, {"params": head.parameters(), "lr": 1e-5}], lr=1e-3)
for _ in range(50):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = head(body(x))
    loss = nn.functional.cross_entropy(out.float(), x[:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
