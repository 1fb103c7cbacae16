"""A checkpoint with a NaN weight is loaded."""
import io

import torch
from torch import nn

torch.manual_seed(0)


def stored():
    state = nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 2)).state_dict()
    state["2.weight"].numpy()[1, 3] = float("nan")
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


net = nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 2))
net.load_state_dict(torch.load(stored()))  # FAULT
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(30):
    x = torch.randn(10, 7)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :2].argmax(1))  # FAULT
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
