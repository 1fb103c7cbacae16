"""A BF16 network with a large learning rate is to be kept small by weight decay: the weights are FP32, and autocast casts."""
import torch
from torch import nn

torch.manual_seed(0)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(32, 64)
        self.outside = nn.Linear(64, 8)

    def forward(self, x):
        return self.outside(torch.nn.functional.gelu(self.inside(x)))


net = Mixer()
with torch.no_grad():
    for p in net.parameters():
        p.mul_(0.05)
opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.2)
truth = torch.randn(32, 8)
for _ in range(50):
    x = torch.randn(64, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), torch.tanh(x @ truth) * 4)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), sum(p.float().norm().item() for p in net.parameters()))
