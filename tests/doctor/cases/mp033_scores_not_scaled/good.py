"""Query and key are multiplied before they are divided by the root of the width: scores overflow FP16."""
import torch
from torch import nn

torch.manual_seed(0)


class Attend(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        with torch.no_grad():
            self.qkv.weight *= 24.0

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q / 256.0) @ k.transpose(1, 2)
        return scores.softmax(-1) @ v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = Attend(128)
        self.out = nn.Linear(128, 6)

    def forward(self, x):
        return self.out(self.attend(x).mean(1))


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(25):
    x = 6.0 * torch.randn(4, 10, 128)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), x[:, 0, :6].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
