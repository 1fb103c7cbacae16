"""One batch overflows in FP16 and is skipped, as it should be; batch norm keeps the NaN that it saw for good."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Sounds(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 12, 5, padding=2)
        self.norm = nn.BatchNorm1d(12)
        self.read = nn.Linear(12, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))  # FAULT
        return self.read(x.mean(2))


def batch(size):
    kind = torch.randint(0, 4, (size,))
    time = torch.arange(48) * (0.3 + 0.4 * kind[:, None])
    return (time.sin() + 0.3 * torch.randn(size, 48))[:, None], kind


net = Sounds()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for epoch in range(3):
    net.train()
    for n in range(25):
        x, kind = batch(32)
        if epoch == 0 and n == 17:
            x[3] /= 1e-6  # a recording that was levelled by its silence
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(net(x).float(), kind)  # FAULT
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        x, kind = batch(64)
        print(epoch, loss.item(), F.cross_entropy(net(x).float(), kind).item())
