import torch
from torch import nn

torch.manual_seed(0)
centres = torch.randn(16, 32)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

for step in range(300):
    targets = torch.randint(16, (64,))
    inputs = (centres[targets] + torch.randn(64, 32)).to(torch.bfloat16)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs).float(), targets)
    loss.backward()
    optimizer.step()
    if step % 150 == 149:
        print(f"step {step + 1}: loss {loss.item():.3f}")
