"""A fit that reaches a loss of zero: gradients vanish because there is nothing left to learn."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1, bias=False)
opt = torch.optim.SGD(net.parameters(), lr=0.2)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
goal = torch.tensor([[0.5, -0.25, 1.0, 0.0]])
for _ in range(100):
    x = torch.randn(32, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), x @ goal.t())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
