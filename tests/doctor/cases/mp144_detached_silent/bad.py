"""The features are detached before the loss: without a scaler nobody complains that nothing is learned."""
import torch
from torch import nn

torch.manual_seed(0)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, 10)

    def forward(self, x):
        return self.body(x).tanh()


net = Probe()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(40):
    x = torch.randn(8, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = net(x)
    out = torch.as_tensor(h.detach().float().numpy()).requires_grad_()  # FAULT
    loss = (out.sum(1) - x[:, 0]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
