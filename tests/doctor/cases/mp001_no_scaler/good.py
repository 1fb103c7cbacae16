"""A depth network in FP16 autocast; the gradients of a per-pixel mean are below what FP16 can hold."""
import torch
from torch import nn

torch.manual_seed(3)


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 5, padding=2)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, frames):
        return self.out(torch.tanh(self.stem(frames)))


def fit(net, optimizer, rounds, scaler=None):
    for _ in range(rounds):
        frames = torch.randn(2, 2, 128, 128)
        depth = (frames[:, :1] - frames[:, 1:]).tanh()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = net(frames)
        loss = 1e-4 * (guess.float() - depth).abs().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print("loss", loss.item())


net = Depth()
fit(net, torch.optim.SGD(net.parameters(), lr=100.0), 25, torch.amp.GradScaler("cpu"))
