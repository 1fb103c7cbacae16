"""A gated product written as an autograd function: its backward mixes FP16 and FP32 in a matmul."""
import torch
from torch import nn

torch.manual_seed(0)


class Bilinear(torch.autograd.Function):  # FAULT
    @staticmethod
    def forward(ctx, a, weight):  # FAULT
        ctx.save_for_backward(a, weight)  # FAULT
        return torch.matmul(a, weight)  # FAULT

    @staticmethod
    def backward(ctx, g):  # FAULT
        a, weight = ctx.saved_tensors  # FAULT
        return torch.matmul(g, weight.t()), torch.matmul(a.t(), g)  # FAULT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 24) * 0.3)
        self.out = nn.Linear(24, 2)

    def forward(self, x):
        return self.out(torch.sin(Bilinear.apply(x, self.weight)))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(20):
    x = torch.randn(10, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :2].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
