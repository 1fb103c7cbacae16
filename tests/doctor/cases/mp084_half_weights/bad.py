"""The backbone is converted to FP16 before it is trained with a scaler."""
import torch
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 40), nn.ReLU())
        self.head = nn.Linear(40, 5)
        if half:
            self.backbone = self.backbone.half()  # FAULT

    def forward(self, x):
        return self.head(self.backbone(x))


net = Classifier(half=True)  # FAULT
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(20):
    x = torch.randn(12, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :5].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
