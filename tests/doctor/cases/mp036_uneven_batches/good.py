"""The same table, its amounts as standardised logarithms."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
amount = torch.exp(torch.randn(960, 1) * 1.1 + 10.0)
others = torch.randn(960, 3)
size = (amount.log() - amount.log().mean()) / amount.log().std()
rows = torch.cat([size, others], 1)
wanted = 0.4 * (amount.log() - 10.0) + 0.3 * others[:, :1]
net = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for _ in range(3):
    for x, y in DataLoader(TensorDataset(rows, wanted), batch_size=48, shuffle=True):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(x)
            loss = nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
print(loss.item(), scaler.get_scale())
