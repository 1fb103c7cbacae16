"""A gated product written as an autograd function: its backward mixes FP16 and FP32 in a matmul."""
import torch
from torch import nn

torch.manual_seed(0)


class Bilinear(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, a, weight):
        ctx.save_for_backward(a, weight)
        return torch.matmul(a, weight)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, weight = ctx.saved_tensors
        return torch.matmul(g, weight.t()), torch.matmul(a.t(), g)


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
