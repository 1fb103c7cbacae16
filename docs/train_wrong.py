"""A training loop with one mistake, for the README: PyTorch runs it without a word."""

import torch


def train(model, optimizer, loader, loss_fn):
    """Train for one epoch in FP16."""
    scaler = torch.amp.GradScaler("cuda")
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_fn(model(inputs), targets)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
