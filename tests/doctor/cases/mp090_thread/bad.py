"""Two halves of the batch are computed in threads, which do not inherit the region of the main thread."""
import threading

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 36), nn.ReLU(), nn.Linear(36, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def part(x, results, key):
    results[key] = net(x)  # FAULT


def parallel(x):
    results = {}
    threads = [threading.Thread(target=part, args=(p, results, k)) for k, p in enumerate(x.chunk(2))]  # FAULT
    for t in threads:
        t.start()  # FAULT
    for t in threads:
        t.join()
    return torch.cat([results[0], results[1]])


for _ in range(30):
    x = torch.randn(24, 12)
    with torch.autocast("cpu", dtype=torch.float16):  # FAULT
        logits = parallel(x)  # FAULT
        loss = nn.functional.cross_entropy(logits, x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
