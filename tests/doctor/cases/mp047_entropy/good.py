"""An entropy bonus takes the log of FP16 probabilities that have rounded to zero."""
import torch
from torch import nn

torch.manual_seed(0)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 6))
        with torch.no_grad():
            self.body[2].weight *= 40.0

    def entropy(self, logits):
        p = logits.softmax(-1)
        return -(p * logits.float().log_softmax(-1)).sum(-1)

    def forward(self, state):
        logits = self.body(state)
        return logits, self.entropy(logits)


agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(30):
    s = torch.randn(32, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        logits, entropy = agent(s)
    loss = nn.functional.cross_entropy(logits.float(), s.argmax(1)) - 0.01 * entropy.float().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
