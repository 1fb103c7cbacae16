"""A mixer block whose second projection was trained in a wider range: its output does not fit FP16."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Mixer(nn.Module):
    def __init__(self, width, gain):
        super().__init__()
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        with torch.no_grad():
            self.up.weight *= gain
            self.down.weight *= gain

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        with torch.autocast("cpu", enabled=False):
            return torch.tanh(self.down(hidden.float())) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(10, 32)
        self.mix = nn.Sequential(Mixer(32, 2.0), Mixer(32, 700.0))
        self.read = nn.Linear(32, 4)

    def forward(self, x):
        x = torch.nn.functional.layer_norm(self.mix(self.embed(x)).float(), (32,))
        return self.read(x)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu")
for _ in range(30):
    x = torch.randn(16, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x[:, :4].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
