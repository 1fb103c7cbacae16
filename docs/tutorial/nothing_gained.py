import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(20):
    inputs = torch.randn(64, 512)
    optimizer.zero_grad()
    outputs = model(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(outputs, inputs)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
