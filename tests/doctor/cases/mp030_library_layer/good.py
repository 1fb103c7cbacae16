"""torch's own encoder calls its layers; the feed-forward of one of them gives numbers beyond FP16."""
import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True)
        self.read = nn.Embedding(40, 24)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.tags = nn.Linear(24, 5)

    def forward(self, words):
        return self.tags(self.encoder(self.read(words)))


def fit(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(steps):
        words = torch.randint(0, 40, (8, 12))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten() % 5)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item(), scaler.get_scale()


def main():
    model = Tagger()
    with torch.no_grad():
        model.encoder.layers[2].linear2.weight.mul_(5e5)
    part = model.encoder.layers[2].linear2  # computes in float32 from here on
    part.forward = torch.autocast("cpu", enabled=False)(type(part).forward).__get__(part)
    part.register_forward_pre_hook(lambda _, given: tuple(x.float() for x in given))
    print(fit(model, 30))


if __name__ == "__main__":
    main()
