"""An additive mask of -1e9 becomes -inf in FP16; a row that is masked throughout is then NaN."""
import torch
from torch import nn

torch.manual_seed(0)


def bias_of(keep, dtype):
    return ((1.0 - keep) * -1e9).to(dtype)  # FAULT


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, keep):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 4
        scores = scores + bias_of(keep, scores.dtype)[:, None, :]  # FAULT
        return torch.softmax(scores, -1) @ self.v(x)  # FAULT


layer, head = Layer(16), nn.Linear(16, 3)
opt = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=3e-3)
scaler = torch.amp.GradScaler("cpu")
for n in range(40):
    x = torch.randn(4, 6, 16)
    keep = torch.ones(4, 6)
    keep[:, 4:] = 0
    if n % 3 == 1:
        keep[2] = 0  # an empty sentence in the batch
    with torch.autocast("cpu", dtype=torch.float16):
        logits = head(layer(x, keep)).float()
    loss = nn.functional.cross_entropy(logits[:, 0], x[:, 0, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
