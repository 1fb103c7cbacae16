import torch
from torch import nn

torch.manual_seed(0)
embed, score, head = nn.Embedding(50, 32), nn.Linear(32, 1), nn.Linear(32, 50)
optimizer = torch.optim.AdamW([*embed.parameters(), *score.parameters(), *head.parameters()], lr=1e-2)

for step in range(40):
    tokens = torch.randint(50, (8, 12))
    lengths = torch.randint(13, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = embed(tokens)
        scores = score(hidden).squeeze(-1)
        scores = scores.masked_fill(torch.arange(12) >= lengths[:, None], float("-inf"))
        pooled = (torch.softmax(scores, -1)[..., None] * hidden).sum(1)
        loss = nn.functional.cross_entropy(head(pooled), tokens[:, 0])
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.3f}")
