"""Digits with 8-bit optimizer states under mixprec's scaler: pip install 'mixprec[quantized,examples]'."""

import torch
from bitsandbytes.optim import AdamW8bit
from sklearn.datasets import load_digits
from torch import nn

from mixprec import Precision

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = AdamW8bit(model.parameters(), 1e-2)  # torchao.optim.AdamW8bit is used the same way
precision = Precision("fp16-mixed", optimizer, model=model, max_norm=1.0)

for _ in range(5):
    for chosen in torch.randperm(len(images)).split(64)[:-1]:
        with precision.autocast():
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        precision.backward(loss)
        report = precision.step()

states = {v.dtype for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.numel() > 4096}
print("moments of the large layer:", *sorted(str(dtype) for dtype in states))
print(f"loss {loss.item():.3f}, {report.step + 1} steps, loss scale {report.scale_after:g}")
