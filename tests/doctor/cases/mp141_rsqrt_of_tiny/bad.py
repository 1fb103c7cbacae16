"""A mean square of tiny FP16 features is subnormal; its inverse root meets it in backward."""
import torch
from torch import nn

torch.manual_seed(0)


class Whiten(nn.Module):
    def forward(self, x):
        power = (x * x).mean(1, keepdim=True)  # FAULT
        return x * power.rsqrt()  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(20, 16, bias=False)
        self.white, self.out = Whiten(), nn.Linear(16, 3)
        nn.init.normal_(self.inner.weight, std=6e-5)

    def forward(self, x):
        return self.out(self.white(self.inner(x)))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu")
for _ in range(40):
    x = torch.randn(24, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x).float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
