"""The loss is scaled by one scaler and the optimizer stepped through another."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
main_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
aux_scaler = main_scaler
for _ in range(20):
    x = torch.randn(10, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x[:, :2].argmax(1))
    opt.zero_grad()
    main_scaler.scale(loss).backward()
    aux_scaler.step(opt)
    aux_scaler.update()
    print(loss.item())
