"""The head is replaced after the optimizer was built; the optimizer keeps the old one."""
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        for p in self.body.parameters():
            p.requires_grad_(False)
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.body(x))

    def resize(self, classes):
        self.head = nn.Linear(24, classes)


net = Net(10)
net.resize(3)
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
scaler = torch.amp.GradScaler("cpu")
for _ in range(20):
    x = torch.randn(12, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(loss.item())
