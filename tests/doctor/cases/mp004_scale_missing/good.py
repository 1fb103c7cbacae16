"""A trainer calls backward on the plain loss and then steps through the scaler."""
import torch
from torch import nn

torch.manual_seed(0)


class Fit:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.amp = torch.amp.GradScaler("cpu")

    def backward(self, loss):
        self.amp.scale(loss).backward()

    def run(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.cross_entropy(self.net(x), y)
        self.backward(loss)
        self.amp.step(self.opt)
        self.amp.update()
        return loss.item()


fit = Fit()
for _ in range(30):
    x = torch.randn(20, 4)
    print(f"{fit.run(x, x[:, :3].argmax(1)):.3f}")
