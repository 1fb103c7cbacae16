"""FP16 messages are added by index to an FP32 accumulator."""
import torch
from torch import nn

torch.manual_seed(0)


class Segments(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x, group):
        m = self.message(x)
        pooled = torch.zeros(5, 8)
        pooled = pooled.index_add(0, group, m.to(pooled.dtype))
        return self.out(pooled)


net = Segments()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(15):
    group = torch.randint(0, 5, (20,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(torch.randn(20, 4), group), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
