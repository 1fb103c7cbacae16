"""A trainer class clips by norm; the helper that does it runs before the gradients are unscaled."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)


class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        self.scaler = torch.amp.GradScaler("cpu")

    def bound(self):
        self.scaler.unscale_(self.optimizer)
        return nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)

    def step(self, ids, labels):
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(self.net(ids), labels)
        self.scaler.scale(loss).backward()
        norm = self.bound()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item(), float(norm)


trainer = Trainer(nn.Sequential(nn.Embedding(40, 16), nn.Flatten(), nn.Linear(64, 40)))
for turn in range(50):
    ids = torch.randint(0, 40, (24, 4))
    loss, norm = trainer.step(ids, ids[:, 1])
print(f"loss {loss:.3f} norm {norm:.1f}")
