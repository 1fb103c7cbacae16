"""A GRU cell under FP16 autocast on a CPU without 16-bit units."""
import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 12, num_layers=2)
        self.out = nn.Linear(12, 3)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            h, _ = self.rnn(x.float())
        return self.out(h[-1])


net = Tagger()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(15):
    x = torch.randn(7, 10, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[0, :, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
