"""Correct training scripts in the ways that people write them; mutations break them one by one.

Each is a text that every rule must be silent about. They are read by the linter only and never run.
"""

from __future__ import annotations

HEAD = """\
import torch
import torch.nn.functional as F

device = "cuda"
"""

PLAIN = (
    HEAD
    + """
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast(device_type=device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
"""
)

FUNCTION = (
    HEAD
    + """

def train_one_epoch(model, loader, optimizer, scaler, max_norm):
    model.train()
    total = 0.0
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        with torch.cuda.amp.autocast(dtype=torch.float16):
            outputs = model(images)
            loss = F.cross_entropy(outputs, targets)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    return total / len(loader), norm


def main():
    model = torch.nn.Linear(8, 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler()
    for epoch in range(10):
        loss, norm = train_one_epoch(model, loader, optimizer, scaler, 1.0)
        print(epoch, loss, norm)
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(),
            },
            f"epoch{epoch}.pt",
        )


if __name__ == "__main__":
    main()
"""
)

TRAINER = (
    HEAD
    + """

class Trainer:
    def __init__(self, model, lr):
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler(device)

    def compute_loss(self, batch):
        with torch.autocast(device, dtype=torch.float16):
            return F.l1_loss(self.model(batch["x"]), batch["y"])

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def optimizer_step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for batch in loader:
                self.optimizer.zero_grad()
                loss = self.compute_loss(batch)
                self.backward(loss)
                self.optimizer_step()
            print(epoch, loss.item())
            self.save(epoch)

    def save(self, epoch):
        state = {
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        torch.save(state, "last.pt")
"""
)

ACCUMULATION = (
    HEAD
    + """
ACCUM_STEPS = 4
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
optimizer.zero_grad()
for i, (x, y) in enumerate(loader):
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y) / ACCUM_STEPS
    scaler.scale(loss).backward()
    if (i + 1) % ACCUM_STEPS == 0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""
)

ACCUMULATION_LAST = (
    HEAD
    + """

def train(model, optimizer, scaler, loader, args):
    optimizer.zero_grad()
    for i, batch in enumerate(loader):
        is_update_step = (i + 1) % args.accum_steps == 0 or (i + 1) == len(loader)
        with torch.autocast(device, dtype=torch.float16):
            loss = model(**batch).loss
        loss = loss / args.accum_steps
        scaler.scale(loss).backward()
        if is_update_step:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
"""
)

MICRO_LOOP = (
    HEAD
    + """
from contextlib import nullcontext

accumulation_steps = 8
device_type = "cuda"
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=torch.float16)
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
iteration = 0
X, Y = get_batch("train")
while True:
    for micro_step in range(accumulation_steps):
        with ctx:
            logits = model(X)
            loss = F.cross_entropy(logits, Y)
            loss = loss / accumulation_steps
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    iteration += 1
    if iteration > 1000:
        break
"""
)

GAN = (
    HEAD
    + """
G = torch.nn.Linear(8, 8).to(device)
D = torch.nn.Linear(8, 1).to(device)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler(device)
for real in loader:
    with torch.autocast(device, dtype=torch.float16):
        fake = G(torch.randn_like(real))
        loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    scaler.unscale_(opt_d)
    torch.nn.utils.clip_grad_norm_(D.parameters(), 1.0)
    scaler.step(opt_d)
    with torch.autocast(device, dtype=torch.float16):
        loss_g = F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.unscale_(opt_g)
    torch.nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    scaler.step(opt_g)
    scaler.update()
"""
)

JOINT = (
    HEAD
    + """

def train(encoder, head, loader):
    opt_encoder = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
    opt_head = torch.optim.AdamW(head.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device)
    for x, y in loader:
        opt_encoder.zero_grad()
        opt_head.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(head(encoder(x)), y)
        scaler.scale(loss).backward()
        scaler.step(opt_encoder)
        scaler.step(opt_head)
        scaler.update()
"""
)

BRANCHES = (
    HEAD
    + """

def train(model, optimizer, loader, use_amp, clip):
    scaler = torch.amp.GradScaler(device) if use_amp else None
    for x, y in loader:
        optimizer.zero_grad()
        if use_amp:
            with torch.autocast(device, dtype=torch.float16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
"""
)

NONE_SCALER = (
    HEAD
    + """

def train_epoch(model, criterion, optimizer, loader, scaler=None, max_norm=0.0):
    for image, target in loader:
        with torch.autocast(device, dtype=torch.float16, enabled=scaler is not None):
            loss = criterion(model(image), target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            if max_norm:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if max_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
"""
)

ENABLED = """\
import argparse

import torch
from torch.cuda import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = amp.GradScaler(enabled=args.fp16)
for x, y in loader:
    optimizer.zero_grad()
    with amp.autocast(enabled=args.fp16, dtype=torch.float16):
        loss = (model(x) - y).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""

SCHEDULED = (
    HEAD
    + """
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=1000)
scaler = torch.amp.GradScaler(device)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
"""
)

EPOCH_SCHEDULE = (
    HEAD
    + """

def run(model, loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)
    grad_scaler = torch.amp.GradScaler(device)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = F.mse_loss(model(x), y)
            grad_scaler.scale(loss).backward()
            grad_scaler.step(optimizer)
            grad_scaler.update()
        lr_scheduler.step()
"""
)

CHECKPOINTS = (
    HEAD
    + """

def save(path, model, optimizer, scaler, step):
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    checkpoint["scaler"] = scaler.state_dict()
    torch.save(checkpoint, path)


def load(path, model, optimizer, scaler):
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scaler.load_state_dict(checkpoint["scaler"])
    return checkpoint["step"]


model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
start = load("last.pt", model, optimizer, scaler)
for step in range(start, 1000):
    x, y = next(batches)
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 100 == 0:
        save("last.pt", model, optimizer, scaler, step)
"""
)

DISTRIBUTED = (
    HEAD
    + """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def worker(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    model = DDP(torch.nn.Linear(8, 1).to(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device)
    for epoch in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        dist.barrier()
"""
)

PENALTY = (
    HEAD
    + """
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaled_grads = torch.autograd.grad(outputs=scaler.scale(loss), inputs=model.parameters(), create_graph=True)
    inv_scale = 1.0 / scaler.get_scale()
    grads = [g * inv_scale for g in scaled_grads]
    with torch.autocast(device, dtype=torch.float16):
        penalty = sum(g.pow(2).sum() for g in grads).sqrt()
        loss = loss + penalty
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
"""
)

SKIPPING = (
    HEAD
    + """
LIMIT = 100.0
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if norm > LIMIT:
        print("skipped a step with norm", norm.item())
    else:
        scaler.step(optimizer)
    scaler.update()
"""
)

NATIVE = (
    HEAD
    + """

class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler(device)

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False, need_update=True):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if need_update:
            if clip_grad is not None:
                self._scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
            self._scaler.step(optimizer)
            self._scaler.update()

    def state_dict(self):
        return self._scaler.state_dict()


def train(model, loader, accum_iter):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_scaler = NativeScaler()
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        loss = loss / accum_iter
        update = (i + 1) % accum_iter == 0
        loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters(), need_update=update)
        if update:
            optimizer.zero_grad()
"""
)

DTYPE = """\
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
args = parser.parse_args()
ptdtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}[args.dtype]
scaler = torch.amp.GradScaler("cuda", enabled=(args.dtype == "float16"))
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in loader:
    with torch.autocast("cuda", dtype=ptdtype):
        loss = (model(x) - y).abs().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""

HELPERS = (
    HEAD
    + """

def forward_loss(model, batch):
    x, y = batch
    with torch.autocast(device, dtype=torch.float16):
        return F.smooth_l1_loss(model(x), y)


def backward_pass(scaler, loss):
    scaler.scale(loss).backward()


def clip(scaler, optimizer, model):
    scaler.unscale_(optimizer)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def apply_step(scaler, optimizer):
    scaler.step(optimizer)
    scaler.update()


def train(model, loader):
    optimizer = torch.optim.RMSprop(model.parameters())
    scaler = torch.amp.GradScaler(device)
    for batch in loader:
        optimizer.zero_grad()
        loss = forward_loss(model, batch)
        backward_pass(scaler, loss)
        clip(scaler, optimizer, model)
        apply_step(scaler, optimizer)
        log(loss.item())
"""
)

SAM = (
    HEAD
    + """
from sam import SAM

model = torch.nn.Linear(8, 1).to(device)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
scaler = torch.amp.GradScaler(device)
for x, y in loader:
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    optimizer.first_step(zero_grad=True)
    scaler.update()
    with torch.autocast(device, dtype=torch.float16):
        second = F.mse_loss(model(x), y)
    scaler.scale(second).backward()
    scaler.unscale_(optimizer)
    optimizer.second_step(zero_grad=True)
    scaler.update()
"""
)

LOGGED = (
    HEAD
    + """
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device)
running = 0.0
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = F.mse_loss(model(x), y)
    scaled = scaler.scale(loss)
    scaled.backward()
    value = scaled.item() / scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    running += loss.item()
    print(step, value, running / (step + 1))
"""
)

ALTERNATING = (
    HEAD
    + """

class Gan:
    def __init__(self, G, D):
        self.G, self.D = G, D
        self.optimizer_g = torch.optim.Adam(G.parameters(), lr=1e-4)
        self.optimizer_d = torch.optim.Adam(D.parameters(), lr=1e-4)
        self.scaler = torch.amp.GradScaler(device)

    def train_step(self, real):
        with torch.autocast(device, dtype=torch.float16):
            fake = self.G(torch.randn_like(real))
            loss_d = F.softplus(self.D(fake.detach())).mean() - self.D(real).mean()
            loss_g = -self.D(fake).mean()
        self.optimizer_d.zero_grad()
        self.optimizer_g.zero_grad()
        self.scaler.scale(loss_g).backward(retain_graph=True)
        self.optimizer_d.zero_grad()
        self.scaler.scale(loss_d).backward()
        self.scaler.step(self.optimizer_g)
        self.scaler.step(self.optimizer_d)
        self.scaler.update()
        return loss_g.item(), loss_d.item()

    def fit(self, loader):
        for real in loader:
            print(self.train_step(real))
"""
)

SCRIPTS = {
    name.lower(): text
    for name, text in list(globals().items())
    if name.isupper() and isinstance(text, str) and name not in ("HEAD",)
}
"""Every script by name."""
