"""A module converted to BF16 is fine-tuned with a learning rate below half a unit in the last place."""
import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 24)
        self.mix = nn.Linear(24, 24)
        self.out = nn.Linear(24, 5)

    def forward(self, ids):
        return self.out(torch.tanh(self.mix(self.embed(ids))))


net = Tagger()
with torch.no_grad():
    for p in net.parameters():
        p.add_(p.sign() * 0.5)
opt = torch.optim.AdamW(net.parameters(), lr=1e-5)
for _ in range(60):
    ids = torch.randint(0, 60, (16, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(ids)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), (ids % 5).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
