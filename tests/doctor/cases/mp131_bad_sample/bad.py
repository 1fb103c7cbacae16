"""One file of the data set holds NaN."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(320, 9)
x[137, 4] = float("nan")  # FAULT
y = x[:, 0].gt(0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))  # FAULT
net = nn.Sequential(nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for epoch in range(3):
    for features, label in loader:  # FAULT
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(features), label)  # FAULT
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    print(epoch, loss.item(), scaler.get_scale())
