"""A classifier is trained, converted to fp16, compared with float32, saved, loaded and exported.

pip install 'mixprec[convert,examples]'
"""

import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn

import mixprec

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)


def network():
    return nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10), nn.LogSoftmax(-1))


model = network()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.nll_loss(model(images[:1500]), labels[:1500]).backward()
    optimizer.step()

small = mixprec.convert(model, "fp16", policy="uniform", sample=images[1500:])
print(small.parity)
for path, reason in small.kept.items():
    print(f"float32: {path}: {reason}")

model.eval()
with torch.no_grad():
    for name, each in (("float32", model), ("fp16", small)):
        right = (each(images[1500:]).argmax(-1) == labels[1500:]).float().mean()
        print(f"{name}: {right:.2%} of the test images right")

with tempfile.TemporaryDirectory() as folder:
    small.save(f"{folder}/digits.safetensors")
    loaded = mixprec.Converted.load(f"{folder}/digits.safetensors", network())
    assert torch.equal(loaded(images[:8]), small(images[:8]))

exported = torch.export.export(small, (images[:8],))
assert torch.allclose(exported.module()(images[:8]), small(images[:8]))
