"""Scripts in the styles that people write, each right as it stands, with the mistakes that can be put into it.

A mistake is (code, text, what to write in its place).
"""

# ruff: noqa: E501 - scripts as people write them, with their long lines

from __future__ import annotations

Mistake = tuple[str, str, str]

SCRIPTS: dict[str, tuple[str, tuple[Mistake, ...]]] = {
    "lightning_like": (
        """\
import torch
from torch import nn
from dataclasses import dataclass

@dataclass
class Config:
    lr: float = 1e-3
    accumulate: int = 4
    clip: float = 1.0
    precision: str = "fp16"
    epochs: int = 3

class BaseTask:
    def training_step(self, batch, idx):
        raise NotImplementedError

class Task(BaseTask):
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 2)).cuda()
    def training_step(self, batch, idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)
    def configure(self):
        return torch.optim.AdamW(self.net.parameters(), lr=self.cfg.lr)

class Loop:
    def __init__(self, task, cfg):
        self.task, self.cfg = task, cfg
        self.optimizer = task.configure()
        self.scaler = torch.amp.GradScaler("cuda", enabled=cfg.precision == "fp16")
        self.step_no = 0
    def _autocast(self):
        dtype = torch.float16 if self.cfg.precision == "fp16" else torch.bfloat16
        return torch.autocast("cuda", dtype=dtype, enabled=self.cfg.precision != "fp32")
    def _optimizer_step(self):
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.task.net.parameters(), self.cfg.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step_no += 1
    def fit(self, loader):
        for epoch in range(self.cfg.epochs):
            for idx, batch in enumerate(loader):
                with self._autocast():
                    loss = self.task.training_step(batch, idx) / self.cfg.accumulate
                self.scaler.scale(loss).backward()
                if (idx + 1) % self.cfg.accumulate == 0 or idx + 1 == len(loader):
                    self._optimizer_step()

cfg = Config()
Loop(Task(cfg), cfg).fit(loader)
""",
        (
            (
                "MP002",
                "        self.scaler.unscale_(self.optimizer)\n        nn.utils.clip_grad_norm_(self.task.net.parameters(), self.cfg.clip)",
                "        nn.utils.clip_grad_norm_(self.task.net.parameters(), self.cfg.clip)",
            ),
            ("MP005", "        self.scaler.update()\n", ""),
            ("MP003", "self.scaler.step(self.optimizer)", "self.optimizer.step()"),
            ("MP004", "self.scaler.scale(loss).backward()", "loss.backward()"),
            ("MP146", "        self.optimizer.zero_grad(set_to_none=True)\n", ""),
            (
                "MP007",
                "                self.scaler.scale(loss).backward()\n",
                "                self.scaler.scale(loss).backward()\n                self.scaler.unscale_(self.optimizer)\n",
            ),
            (
                "MP008",
                "                if (idx + 1)",
                "                self.scaler.update()\n                if (idx + 1)",
            ),
            ("MP203", " / self.cfg.accumulate", ""),
            (
                "MP016",
                "            for idx, batch in enumerate(loader):",
                '            self.scaler = torch.amp.GradScaler("cuda")\n            for idx, batch in enumerate(loader):',
            ),
        ),
    ),
    "gan": (
        """\
import torch
from torch import nn
from torch.cuda.amp import autocast, GradScaler

def train(G, D, loader, args):
    opt_g = torch.optim.Adam(G.parameters(), lr=args.lr, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=args.lr, betas=(0.5, 0.999))
    scaler = GradScaler()
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        for real in loader:
            real = real.cuda()
            z = torch.randn(real.size(0), 64, device=real.device)
            opt_d.zero_grad(set_to_none=True)
            with autocast():
                fake = G(z)
                d_real = D(real)
                d_fake = D(fake.detach())
                loss_d = bce(d_real, torch.ones_like(d_real)) + bce(d_fake, torch.zeros_like(d_fake))
            scaler.scale(loss_d).backward()
            scaler.step(opt_d)
            opt_g.zero_grad(set_to_none=True)
            with autocast():
                d_fake = D(fake)
                loss_g = bce(d_fake, torch.ones_like(d_fake))
            scaler.scale(loss_g).backward()
            scaler.step(opt_g)
            scaler.update()
""",
        (
            ("MP004", "            scaler.scale(loss_g).backward()", "            loss_g.backward()"),
            ("MP005", "            scaler.update()\n", ""),
            ("MP003", "            scaler.step(opt_g)\n", "            opt_g.step()\n"),
            ("MP146", "            opt_g.zero_grad(set_to_none=True)\n", ""),
            ("MP049", "bce = nn.BCEWithLogitsLoss()", "bce = nn.BCELoss()"),
            (
                "MP002",
                "            scaler.step(opt_d)\n",
                "            nn.utils.clip_grad_norm_(D.parameters(), 1.0)\n            scaler.step(opt_d)\n",
            ),
            (
                "MP083",
                "                loss_g = bce(d_fake, torch.ones_like(d_fake))\n            scaler.scale(loss_g).backward()",
                "                loss_g = bce(d_fake, torch.ones_like(d_fake))\n                scaler.scale(loss_g).backward()",
            ),
        ),
    ),
    "argparse_amp": (
        """\
import argparse
import contextlib
import torch
import torch.nn.functional as F

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--amp", choices=["fp16", "bf16", "none"], default="none")
    p.add_argument("--clip", type=float, default=0.0)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(10, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "none": torch.float32}[args.amp]
    ctx = torch.autocast(device_type=device, dtype=dtype) if args.amp != "none" else contextlib.nullcontext()
    scaler = torch.amp.GradScaler(device, enabled=args.amp == "fp16")
    for epoch in range(10):
        model.train()
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device)
            optimizer.zero_grad()
            with ctx:
                loss = F.cross_entropy(model(x), y)
            if args.amp == "fp16":
                scaler.scale(loss).backward()
                if args.clip > 0:
                    scaler.unscale_(optimizer)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                if args.clip > 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                optimizer.step()
        scheduler.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(), "epoch": epoch}, "c.pt")

if __name__ == "__main__":
    main()
""",
        (
            ("MP002", "                    scaler.unscale_(optimizer)\n", ""),
            ("MP005", "                scaler.update()\n", ""),
            (
                "MP003",
                "                scaler.step(optimizer)\n                scaler.update()\n",
                "                optimizer.step()\n                scaler.update()\n",
            ),
            ("MP017", ', "scaler": scaler.state_dict()', ""),
            ("MP146", "            optimizer.zero_grad()\n", ""),
        ),
    ),
    "rl_ppo": (
        """\
import torch
from torch import nn

class Agent(nn.Module):
    def __init__(self, obs, acts):
        super().__init__()
        self.pi = nn.Linear(obs, acts)
        self.v = nn.Linear(obs, 1)
    def forward(self, o):
        return torch.distributions.Categorical(logits=self.pi(o)), self.v(o).squeeze(-1)

class PPO:
    def __init__(self, agent, lr=3e-4, clip=0.2, amp=True):
        self.agent, self.clip_eps = agent, clip
        self.opt = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
        self.amp = amp
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)
    def update(self, rollout, epochs=4, minibatches=8):
        stats = []
        for _ in range(epochs):
            for idx in torch.randperm(rollout.size).chunk(minibatches):
                with torch.autocast("cuda", dtype=torch.float16, enabled=self.amp):
                    dist, value = self.agent(rollout.obs[idx])
                    ratio = (dist.log_prob(rollout.act[idx]).float() - rollout.logp[idx]).exp()
                    adv = rollout.adv[idx]
                    pg = -torch.min(ratio * adv, ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps) * adv).mean()
                    loss = pg + 0.5 * nn.functional.mse_loss(value.float(), rollout.ret[idx]) - 0.01 * dist.entropy().mean()
                self.opt.zero_grad()
                self.scaler.scale(loss).backward()
                self.scaler.unscale_(self.opt)
                norm = nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
                self.scaler.step(self.opt)
                self.scaler.update()
                stats.append(loss.detach())
        return torch.stack(stats).mean().item()

ppo = PPO(Agent(4, 2).cuda())
while True:
    rollout = collect(ppo.agent)
    print(ppo.update(rollout))
""",
        (
            ("MP002", "                self.scaler.unscale_(self.opt)\n", ""),
            ("MP005", "                self.scaler.update()\n", ""),
            ("MP003", "self.scaler.step(self.opt)", "self.opt.step()"),
            ("MP146", "                self.opt.zero_grad()\n", ""),
            ("MP004", "self.scaler.scale(loss).backward()", "loss.backward()"),
            (
                "MP170",
                "                self.opt.zero_grad()\n                self.scaler.scale(loss).backward()\n                self.scaler.unscale_(self.opt)\n",
                "                self.scaler.unscale_(self.opt)\n                self.opt.zero_grad()\n                self.scaler.scale(loss).backward()\n",
            ),
        ),
    ),
    "resume_ddp": (
        """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def setup():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

def save(path, model, opt, sched, scaler, step):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "scaler": scaler.state_dict(), "step": step}, path)

def load(path, model, opt, sched, scaler):
    if not os.path.exists(path):
        return 0
    ckpt = torch.load(path, map_location="cpu")
    model.module.load_state_dict(ckpt["model"])
    opt.load_state_dict(ckpt["opt"])
    sched.load_state_dict(ckpt["sched"])
    scaler.load_state_dict(ckpt["scaler"])
    return ckpt["step"]

def main():
    setup()
    model = DDP(nn.Linear(16, 16).cuda())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sched = torch.optim.lr_scheduler.LinearLR(opt)
    scaler = torch.amp.GradScaler("cuda")
    step = load("last.pt", model, opt, sched, scaler)
    accum = 8
    opt.zero_grad(set_to_none=True)
    for i, (x, y) in enumerate(loader, start=step):
        last = (i + 1) % accum == 0
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), y) / accum
        if not last:
            with model.no_sync():
                scaler.scale(loss).backward()
            continue
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        if scaler.get_scale() >= before:
            sched.step()
        if (i + 1) % 1000 == 0:
            save("last.pt", model, opt, sched, scaler, i)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
""",
        (
            ("MP017", ', "scaler": scaler.state_dict()', ""),
            ("MP017", '    scaler.load_state_dict(ckpt["scaler"])\n', ""),
            ("MP020", "        if scaler.get_scale() >= before:\n            sched.step()", "        sched.step()"),
            ("MP002", "        scaler.unscale_(opt)\n", ""),
            ("MP146", "        opt.zero_grad(set_to_none=True)\n        if scaler", "        if scaler"),
            ("MP005", "        scaler.update()\n", ""),
        ),
    ),
    "ema_compile": (
        """\
import copy
import torch
from torch import nn

class EMA:
    def __init__(self, model, decay=0.999):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)

def train(loader, steps):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10)).cuda()
    ema = EMA(model)
    net = torch.compile(model)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    it = iter(loader)
    for step in range(steps):
        x, y = next(it)
        with torch.autocast("cuda", dtype=torch.float16):
            logits = net(x)
            loss = nn.functional.cross_entropy(logits, y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        ema.update(model)
        if step % 100 == 0:
            evaluate(ema.model)

@torch.no_grad()
def evaluate(model):
    with torch.autocast("cuda", dtype=torch.float16):
        return sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
""",
        (
            ("MP002", "        scaler.unscale_(opt)\n", ""),
            ("MP084", "nn.Linear(7200, 10)).cuda()", "nn.LazyLinear(10)).cuda().half()"),
        ),
    ),
    "nested_helpers": (
        """\
import torch
from torch import nn
from torch.amp import GradScaler, autocast

def forward_loss(model, batch, amp_dtype):
    with autocast("cuda", dtype=amp_dtype):
        out = model(batch["x"])
        return nn.functional.mse_loss(out, batch["y"])

def backward(loss, scaler, accum):
    loss = loss / accum
    if scaler is not None:
        scaler.scale(loss).backward()
    else:
        loss.backward()

def apply(model, optimizer, scaler, max_norm):
    if scaler is not None:
        scaler.unscale_(optimizer)
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return grad_norm

def train(model, loader, fp16=True, accum=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cuda") if fp16 else None
    dtype = torch.float16 if fp16 else torch.bfloat16
    for i, batch in enumerate(loader):
        loss = forward_loss(model, batch, dtype)
        backward(loss, scaler, accum)
        if (i + 1) % accum == 0:
            apply(model, optimizer, scaler, 1.0)

train(nn.Linear(3, 3).cuda(), loader)
""",
        (
            ("MP002", "    if scaler is not None:\n        scaler.unscale_(optimizer)\n", ""),
            ("MP005", "        scaler.update()\n", ""),
            ("MP146", "    optimizer.zero_grad(set_to_none=True)\n", ""),
            (
                "MP003",
                "    if scaler is not None:\n        scaler.step(optimizer)\n        scaler.update()\n    else:\n        optimizer.step()\n",
                "    optimizer.step()\n",
            ),
            (
                "MP004",
                "    if scaler is not None:\n        scaler.scale(loss).backward()\n    else:\n        loss.backward()\n",
                "    loss.backward()\n",
            ),
        ),
    ),
    "unet_notebook": (
        """\
import torch, torch.nn as nn, torch.nn.functional as F
from tqdm.auto import tqdm
device = torch.device("cuda")
model = nn.Conv2d(3, 1, 3, padding=1).to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.9)
grad_scaler = torch.cuda.amp.GradScaler(enabled=True)
criterion = nn.BCEWithLogitsLoss()
def dice_loss(pred, target, eps=1e-6):
    inter = 2 * (pred * target).sum(dim=(-1, -2))
    sets = pred.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    return 1 - ((inter + eps) / (sets + eps)).mean()
global_step = 0
for epoch in range(1, 6):
    model.train()
    epoch_loss = 0
    with tqdm(total=len(train_loader), desc=f"Epoch {epoch}") as pbar:
        for batch in train_loader:
            images, true_masks = batch["image"].to(device), batch["mask"].to(device)
            with torch.autocast(device.type, enabled=True):
                masks_pred = model(images)
                loss = criterion(masks_pred.squeeze(1), true_masks.float())
            loss = loss + dice_loss(torch.sigmoid(masks_pred.float().squeeze(1)), true_masks.float())
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            pbar.update(images.shape[0])
            global_step += 1
            epoch_loss += loss.item()
            pbar.set_postfix(**{"loss (batch)": loss.item()})
""",
        (
            ("MP002", "            grad_scaler.unscale_(optimizer)\n", ""),
            ("MP049", "criterion = nn.BCEWithLogitsLoss()", "criterion = nn.BCELoss()"),
            ("MP005", "            grad_scaler.update()\n", ""),
            (
                "MP023",
                "            grad_scaler.scale(loss).backward()\n",
                "            loss = grad_scaler.scale(loss)\n            loss.backward()\n",
            ),
            (
                "MP142",
                "            optimizer.zero_grad(set_to_none=True)\n            grad_scaler.scale(loss).backward()\n            grad_scaler.unscale_(optimizer)\n",
                "            optimizer.zero_grad(set_to_none=True)\n            grad_scaler.scale(loss).backward()\n            grad_scaler.unscale_(optimizer)\n            if not torch.isfinite(loss):\n                continue\n",
            ),
        ),
    ),
    "penalty": (
        """\
import torch
from torch import nn

def gradient_penalty(D, real, fake):
    eps = torch.rand(real.size(0), 1, 1, 1, device=real.device)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    with torch.autocast("cuda", enabled=False):
        scores = D(mix.float())
    grads, = torch.autograd.grad(scores.sum(), mix, create_graph=True)
    return ((grads.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

class WGAN:
    def __init__(self, G, D):
        self.G, self.D = G, D
        self.og, self.od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
        self.sg, self.sd = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
    def d_step(self, real, z):
        self.od.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            fake = self.G(z).detach()
            loss = self.D(fake).mean() - self.D(real).mean()
        loss = loss + 10 * gradient_penalty(self.D, real, fake)
        self.sd.scale(loss).backward()
        self.sd.step(self.od)
        self.sd.update()
        return loss.item()
    def g_step(self, z):
        self.og.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = -self.D(self.G(z)).mean()
        self.sg.scale(loss).backward()
        self.sg.step(self.og)
        self.sg.update()
        return loss.item()

def run(loader, G, D):
    gan = WGAN(G, D)
    for n, real in enumerate(loader):
        z = torch.randn(real.size(0), 64, device="cuda")
        gan.d_step(real, z)
        if n % 5 == 0:
            gan.g_step(z)
""",
        (
            ("MP018", "        self.sd.step(self.od)", "        self.sg.step(self.od)"),
            ("MP005", "        self.sg.update()\n", ""),
            ("MP004", "        self.sg.scale(loss).backward()", "        loss.backward()"),
            (
                "MP003",
                "        self.sd.step(self.od)\n        self.sd.update()\n",
                "        self.od.step()\n        self.sd.update()\n",
            ),
        ),
    ),
    "bf16": (
        """\
import torch
from torch import nn
dtype = torch.bfloat16
model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=dtype):
        loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
        (
            ("MP061", "nn.Linear(4, 4).cuda()", "nn.Linear(4, 4).cuda().to(dtype)"),
            ("MP001", "dtype = torch.bfloat16", "dtype = torch.float16"),
            ("MP083", "    loss.backward()", "        loss.backward()"),
            (
                "MP088",
                "    optimizer.step()",
                "    with torch.autocast('cuda', dtype=dtype):\n        optimizer.step()",
            ),
            (
                "MP144",
                "    loss.backward()\n",
                "    loss = torch.tensor(loss.item(), requires_grad=True)\n    loss.backward()\n",
            ),
        ),
    ),
    "attention": (
        """\
import math
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.h)
        scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))

class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = eps
    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight

model = nn.ModuleList([Attention(64, 4), RMSNorm(64)]).cuda()
head = nn.Linear(64, 10).cuda()
opt = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x, mask, y in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        h = model[1](model[0](x, mask))
        loss = nn.functional.cross_entropy(head(h[:, 0]), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP041", "torch.finfo(scores.dtype).min", "-1e9"),
            (
                "MP042",
                "        scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)\n",
                "        scores = scores + (1 - mask[:, None, None].to(scores.dtype)) * -1e9\n",
            ),
            (
                "MP031",
                "        y = x.float()\n        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight",
                "        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight",
            ),
            (
                "MP168",
                "        scores = (q @ k.transpose(-2, -1))",
                "        scores = (q.float() @ k.float().transpose(-2, -1))",
            ),
        ),
    ),
    "accelerate": (
        """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=4)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(batch).mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
""",
        (),
    ),
    "fabric": (
        """\
import torch
import lightning as L
fabric = L.Fabric(precision="16-mixed")
fabric.launch()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer = fabric.setup(model, optimizer)
for batch in loader:
    optimizer.zero_grad()
    loss = model(batch).mean()
    fabric.backward(loss)
    fabric.clip_gradients(model, optimizer, max_norm=1.0)
    optimizer.step()
""",
        (),
    ),
    "custom_fn": (
        """\
import torch
from torch import nn

class Scale(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w
    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d, d))
    def forward(self, x):
        return Scale.apply(x, self.w)

net = nn.Sequential(nn.Linear(8, 8), Layer(8)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP206", '    @torch.amp.custom_bwd(device_type="cuda")\n', ""),
            (
                "MP082",
                '    @staticmethod\n    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)\n    def forward(ctx, x, w):\n        ctx.save_for_backward(x, w)\n        return x @ w\n    @staticmethod\n    @torch.amp.custom_bwd(device_type="cuda")\n',
                "    @staticmethod\n    def forward(ctx, x, w):\n        ctx.save_for_backward(x, w)\n        return x @ w\n    @staticmethod\n",
            ),
        ),
    ),
    "eval_loop": (
        """\
import numpy as np
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

def train_epoch():
    model.train()
    for x, y in train_loader:
        x, y = x.cuda(), y.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

@torch.no_grad()
def evaluate():
    model.eval()
    preds, total, correct = [], 0, 0
    for x, y in val_loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(x.cuda())
        preds.append(logits.float().cpu().numpy())
        correct += (logits.argmax(1).cpu() == y).sum().item()
        total += len(y)
    return np.concatenate(preds), correct / total

for epoch in range(10):
    train_epoch()
    print(evaluate()[1])
""",
        (("MP172", "logits.float().cpu().numpy()", "logits.cpu().numpy()"),),
    ),
    "closure_opt": (
        """\
import torch
from torch import nn
model = nn.Linear(3, 1).cuda()
opt = torch.optim.LBFGS(model.parameters(), lr=1.0)
for x, y in loader:
    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss
    opt.step(closure)
print(torch.amp.autocast("cuda"))
""",
        (),
    ),
    "sam": (
        """\
import torch
from torch import nn
from sam import SAM
model = nn.Linear(3, 1).cuda()
opt = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.first_step(zero_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss2 = nn.functional.mse_loss(model(x), y)
    loss2.backward()
    opt.second_step(zero_grad=True)
""",
        (
            (
                "MP025",
                "    loss.backward()\n    opt.first_step(zero_grad=True)",
                "    scaler.scale(loss).backward()\n    scaler.unscale_(opt)\n    opt.first_step(zero_grad=True)\n    scaler.unscale_(opt)",
            ),
        ),
    ),
    "two_tasks": (
        """\
import torch
from torch import nn
encoder, head_a, head_b = nn.Linear(8, 8).cuda(), nn.Linear(8, 2).cuda(), nn.Linear(8, 3).cuda()
optimizers = [torch.optim.Adam([*encoder.parameters(), *head_a.parameters()]), torch.optim.Adam(head_b.parameters())]
scaler = torch.amp.GradScaler("cuda")
for x, ya, yb in loader:
    for o in optimizers:
        o.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        h = encoder(x)
        loss_a = nn.functional.cross_entropy(head_a(h), ya)
        loss_b = nn.functional.cross_entropy(head_b(h.detach()), yb)
    scaler.scale(loss_a + loss_b).backward()
    for o in optimizers:
        scaler.unscale_(o)
        for g in o.param_groups:
            nn.utils.clip_grad_norm_(g["params"], 1.0)
        scaler.step(o)
    scaler.update()
""",
        (
            ("MP006", "        scaler.step(o)\n    scaler.update()", "        scaler.step(o)\n        scaler.update()"),
            ("MP002", "        scaler.unscale_(o)\n", ""),
            ("MP005", "    scaler.update()\n", ""),
            (
                "MP028",
                "torch.optim.Adam(head_b.parameters())",
                "torch.optim.Adam([*encoder.parameters(), *head_b.parameters()])",
            ),
        ),
    ),
    "vae": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(784, 40)
        self.dec = nn.Linear(20, 784)
    def forward(self, x):
        mu, logvar = self.enc(x).float().chunk(2, dim=-1)
        logvar = logvar.clamp(-20, 20)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar
model = VAE().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
def elbo(recon, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(recon.float(), x, reduction="sum") / len(x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    return rec + kld
for x, _ in loader:
    x = x.view(-1, 784).cuda()
    optimizer.zero_grad()
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        recon, mu, logvar = model(x)
    loss = elbo(recon, x, mu, logvar)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        (
            (
                "MP035",
                "self.enc(x).float().chunk(2, dim=-1)\n        logvar = logvar.clamp(-20, 20)",
                "self.enc(x).chunk(2, dim=-1)",
            ),
        ),
    ),
    "while_steps": (
        """\
import torch
from torch import nn
def cycle(dl):
    while True:
        for b in dl:
            yield b
class Trainer:
    def __init__(self, model, dl, *, lr=1e-4, steps=1000, accum=2, amp=True):
        self.model = model
        self.dl = cycle(dl)
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.steps, self.accum, self.step = steps, accum, 0
        self.amp = amp
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)
    def save(self, n):
        torch.save({"step": self.step, "model": self.model.state_dict(), "opt": self.opt.state_dict(), "scaler": self.scaler.state_dict()}, f"{n}.pt")
    def load(self, n):
        d = torch.load(f"{n}.pt")
        self.model.load_state_dict(d["model"])
        self.step = d["step"]
        self.opt.load_state_dict(d["opt"])
        self.scaler.load_state_dict(d["scaler"])
    def train(self):
        while self.step < self.steps:
            total = 0.0
            for _ in range(self.accum):
                x = next(self.dl).cuda()
                with torch.autocast("cuda", dtype=torch.float16, enabled=self.amp):
                    loss = self.model(x).mean()
                    loss = loss / self.accum
                total += loss.item()
                self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.opt)
            self.scaler.update()
            self.opt.zero_grad()
            self.step += 1
            if self.step % 100 == 0:
                self.save(self.step)
""",
        (
            ("MP002", "            self.scaler.unscale_(self.opt)\n", ""),
            (
                "MP007",
                "                self.scaler.scale(loss).backward()\n            self.scaler.unscale_(self.opt)\n",
                "                self.scaler.scale(loss).backward()\n                self.scaler.unscale_(self.opt)\n",
            ),
            ("MP146", "            self.opt.zero_grad()\n", ""),
            (
                "MP146",
                "            for _ in range(self.accum):\n",
                "            for _ in range(self.accum):\n                self.opt.zero_grad()\n",
            ),
            ("MP017", ', "scaler": self.scaler.state_dict()', ""),
            (
                "MP008",
                "                self.scaler.scale(loss).backward()\n",
                "                self.scaler.scale(loss).backward()\n                self.scaler.update()\n",
            ),
            ("MP203", "                    loss = loss / self.accum\n", ""),
        ),
    ),
    "deepspeed": (
        """\
import deepspeed
import torch
model = torch.nn.Linear(4, 4)
engine, opt, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
for x, y in loader:
    loss = torch.nn.functional.mse_loss(engine(x), y)
    engine.backward(loss)
    engine.step()
""",
        (),
    ),
    "hf": (
        """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("out", fp16=True, per_device_train_batch_size=8)
Trainer(model=model, args=args, train_dataset=train_set).train()
""",
        (
            ("MP084", 'from_pretrained("gpt2")', 'from_pretrained("gpt2", torch_dtype=torch.float16)'),
            ("MP210", "fp16=True", "fp16=True, bf16=True"),
        ),
    ),
    "peft_like": (
        """\
import torch
from torch import nn
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16).cuda()
base.requires_grad_(False)
adapters = nn.ModuleList(nn.Linear(768, 8) for _ in range(12)).cuda()
opt = torch.optim.AdamW(adapters.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        hidden = base(batch).hidden_states
        loss = sum(a(h).float().pow(2).mean() for a, h in zip(adapters, hidden))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "contrastive": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(16, 8)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
    def forward(self, a, b):
        za, zb = F.normalize(self.f(a).float(), dim=-1), F.normalize(self.f(b).float(), dim=-1)
        return self.logit_scale.exp().clamp(max=100) * za @ zb.t(), za
net = Pair().cuda()
opt = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**14)
for a, b in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        sim, z = net(a, b)
        target = torch.arange(len(a), device=sim.device)
        loss = (F.cross_entropy(sim, target) + F.cross_entropy(sim.t(), target)) / 2
    spread = ((z[:, None] - z[None]).square().sum(-1) + 1e-6).sqrt().mean()
    opt.zero_grad()
    scaler.scale(loss - 0.01 * spread).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP045", " + 1e-6).sqrt()", ").sqrt()"),
            ("MP200", "init_scale=2.0**14", "init_scale=2.0**40"),
        ),
    ),
    "frozen_second_phase": (
        """\
import torch
from torch import nn
net = nn.ModuleDict({"body": nn.Linear(8, 8), "head": nn.Linear(8, 2)}).cuda()
warm = torch.optim.SGD(net["head"].parameters(), lr=0.1)
full = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
for epoch in range(10):
    opt = warm if epoch < 2 else full
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net["head"](net["body"](x)), y)
        opt.zero_grad()
        net.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
""",
        (),
    ),
    "input_optim": (
        """\
import torch
from torch import nn
net = nn.Linear(8, 8).cuda().eval()
x = torch.rand(1, 8, device="cuda", requires_grad=True)
opt = torch.optim.Adam([x], lr=0.1)
target = torch.zeros(1, 8, device="cuda")
for _ in range(100):
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), target)
    prior = (x - 0.5).square().mean()
    (loss + prior).backward()
    opt.step()
""",
        (),
    ),
    "adversarial": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
model = nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
def perturb(x, y, eps=0.1):
    x_adv = x.clone().detach().requires_grad_(True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x_adv), y)
    grad, = torch.autograd.grad(loss, x_adv)
    return (x_adv + eps * grad.sign()).detach()
for x, y in loader:
    x_adv = perturb(x, y)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x_adv), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
        (),
    ),
    "distill": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
student, teacher = nn.Linear(8, 3).cuda(), nn.Linear(8, 3).cuda().half().eval()
opt = torch.optim.AdamW(student.parameters())
scaler = torch.amp.GradScaler("cuda")
T = 2.0
for x, y in loader:
    with torch.no_grad():
        t = teacher(x.half())
    with torch.autocast("cuda", dtype=torch.float16):
        s = student(x)
        loss = F.kl_div(F.log_softmax(s / T, -1), F.softmax(t.float() / T, -1), reduction="batchmean") * T * T + F.cross_entropy(s, y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP163", "t = teacher(x.half())", "t = teacher(x.float())"),),
    ),
    "diffusion": (
        """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb, self.net = nn.Linear(1, d), nn.Linear(d + 8, 8)
    def forward(self, x, t):
        return self.net(torch.cat([x, self.emb(t[:, None].float() / 1000)], -1))
net = Net().cuda()
betas = torch.linspace(1e-4, 0.02, 1000, device="cuda")
abar = torch.cumprod(1 - betas, 0)
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda")
for x0 in loader:
    t = torch.randint(0, 1000, (len(x0),), device="cuda")
    noise = torch.randn_like(x0)
    xt = abar[t, None].sqrt() * x0 + (1 - abar[t, None]).sqrt() * noise
    with torch.autocast("cuda", dtype=torch.float16):
        pred = net(xt, t)
        loss = nn.functional.mse_loss(pred.float(), noise)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "threads": (
        """\
import threading
import torch
from torch import nn
model = nn.Linear(4, 4).cuda()
results = {}
def work(i, x):
    with torch.autocast("cuda", dtype=torch.float16):
        results[i] = model(x)
ts = [threading.Thread(target=work, args=(i, torch.randn(2, 4, device="cuda"))) for i in range(4)]
for t in ts: t.start()
for t in ts: t.join()
""",
        (
            (
                "MP090",
                'def work(i, x):\n    with torch.autocast("cuda", dtype=torch.float16):\n        results[i] = model(x)\nts = [threading.Thread(target=work, args=(i, torch.randn(2, 4, device="cuda"))) for i in range(4)]\nfor t in ts: t.start()',
                'def work(i, x):\n    results[i] = model(x)\nwith torch.autocast("cuda", dtype=torch.float16):\n    ts = [threading.Thread(target=work, args=(i, torch.randn(2, 4, device="cuda"))) for i in range(4)]\n    for t in ts: t.start()',
            ),
        ),
    ),
    "fsdp": (
        """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
dist.init_process_group("nccl")
model = FSDP(nn.Linear(8, 8).cuda())
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = ShardedGradScaler()
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).float().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    model.clip_grad_norm_(1.0)
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP026", "scaler = ShardedGradScaler()", "scaler = torch.amp.GradScaler('cuda')"),
            ("MP002", "    scaler.unscale_(opt)\n", ""),
        ),
    ),
    "dict_everything": (
        """\
import torch
from torch import nn
state = {}
state["model"] = nn.Linear(4, 2).cuda()
state["opt"] = torch.optim.SGD(state["model"].parameters(), lr=0.1)
state["scaler"] = torch.amp.GradScaler("cuda")
def step(state, batch):
    x, y = batch
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(state["model"](x), y)
    state["opt"].zero_grad()
    state["scaler"].scale(loss).backward()
    state["scaler"].unscale_(state["opt"])
    nn.utils.clip_grad_norm_(state["model"].parameters(), 1.0)
    state["scaler"].step(state["opt"])
    state["scaler"].update()
for batch in loader:
    step(state, batch)
""",
        (
            ("MP002", '    state["scaler"].unscale_(state["opt"])\n', ""),
            ("MP005", '    state["scaler"].update()\n', ""),
            ("MP003", 'state["scaler"].step(state["opt"])', 'state["opt"].step()'),
            ("MP004", 'state["scaler"].scale(loss).backward()', "loss.backward()"),
        ),
    ),
    "generator_trainer": (
        """\
import torch
from torch import nn
class Context:
    def __init__(self, amp):
        self.amp = amp
        self.scaler = torch.amp.GradScaler("cuda") if amp else None
    def cast(self):
        return torch.autocast("cuda", dtype=torch.float16, enabled=self.amp)
    def backward(self, loss):
        (self.scaler.scale(loss) if self.scaler else loss).backward()
    def step(self, opt, params, clip=None):
        if self.scaler:
            if clip:
                self.scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(params, clip)
            self.scaler.step(opt)
            self.scaler.update()
        else:
            if clip:
                nn.utils.clip_grad_norm_(params, clip)
            opt.step()
def train(model, loader, amp):
    ctx = Context(amp)
    opt = torch.optim.Adam(model.parameters())
    for x in loader:
        opt.zero_grad()
        with ctx.cast():
            loss = model(x).mean()
        ctx.backward(loss)
        ctx.step(opt, model.parameters(), clip=1.0)
        yield loss.item()
for value in train(nn.Linear(3, 1).cuda(), loader, True):
    print(value)
""",
        (
            ("MP002", "                self.scaler.unscale_(opt)\n", ""),
            ("MP005", "            self.scaler.update()\n", ""),
            (
                "MP003",
                "            self.scaler.step(opt)\n            self.scaler.update()\n",
                "            opt.step()\n            self.scaler.update()\n",
            ),
        ),
    ),
    "rope": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Rope(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        inv = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        pos = torch.arange(n).float()
        self.register_buffer("angles", torch.outer(pos, inv))
        self.proj = nn.Linear(d, d)
    def forward(self, x):
        q = self.proj(x)
        a = self.angles[: x.shape[1]]
        cos, sin = a.cos().to(q.dtype), a.sin().to(q.dtype)
        q1, q2 = q.chunk(2, -1)
        return torch.cat([q1 * cos - q2 * sin, q1 * sin + q2 * cos], -1)
net = nn.Sequential(Rope(64, 4096), nn.Linear(64, 64)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x).float(), y)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP065", "pos = torch.arange(n).float()", "pos = torch.arange(n).half()"),),
    ),
    "normaliser": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
    def forward(self, x):
        h = self.lin(x).float()
        mean = h.mean(-1, keepdim=True)
        var = (h - mean).pow(2).mean(-1, keepdim=True)
        return (h - mean) / (var + 1e-8).sqrt()
net = Norm(16).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(net(x), y)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "entropy_loss": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        logits = net(x)
        p = logits.float().softmax(-1)
        loss = F.cross_entropy(logits, y) - 0.01 * -(p * p.clamp_min(1e-8).log()).sum(-1).mean()
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP047",
                "logits.float().softmax(-1)\n        loss = F.cross_entropy(logits, y) - 0.01 * -(p * p.clamp_min(1e-8).log())",
                "logits.softmax(-1).half()\n        loss = F.cross_entropy(logits, y) - 0.01 * -(p * (p + 1e-8).log())",
            ),
        ),
    ),
    "masked_rows": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(16, 1)
        self.out = nn.Linear(16, 4)
    def forward(self, x, keep):
        s = self.score(x).squeeze(-1)
        s = s.masked_fill(~keep, torch.finfo(s.dtype).min)
        w = s.softmax(-1)
        return self.out((w.unsqueeze(-1) * x).sum(1))
net = Pool().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(net(x, x.abs().sum(-1) > 0), y)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP041", "torch.finfo(s.dtype).min", "-1e9"),
            ("MP041", "torch.finfo(s.dtype).min", "torch.finfo(torch.float32).min"),
            (
                "MP042",
                "s = s.masked_fill(~keep, torch.finfo(s.dtype).min)",
                "s = torch.where(keep, s, torch.tensor(-1e9, dtype=s.dtype, device=s.device))",
            ),
        ),
    ),
    "bfloat_metric": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Linear(16, 4).cuda()
running = torch.zeros((), device="cuda")
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
        running += loss.detach()
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP068", 'torch.zeros((), device="cuda")', 'torch.zeros((), device="cuda", dtype=torch.bfloat16)'),),
    ),
    "noise": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Linear(16, 16).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        noise = torch.randn(x.shape, device=x.device).to(torch.float16)
        loss = F.mse_loss(net(x + noise), noise)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "inplace": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Linear(16, 16).cuda()
w = torch.randn(16, 16, device="cuda")
out = torch.empty(8, 16, device="cuda")
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        h = torch.mm(x, w)
        loss = F.mse_loss(net(h), y)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP091", "h = torch.mm(x, w)", "h = torch.mm(x, w, out=out)"),),
    ),
    "index_add": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Scatter(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(16, 16)
    def forward(self, x, idx):
        out = torch.zeros(10, 16, device=x.device)
        return out.index_add(0, idx, self.f(x).to(out.dtype))
net = Scatter().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x, y).square().mean()
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP162", ".to(out.dtype)", ""),),
    ),
    "island": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Stable(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(16, 16), nn.Linear(16, 4)
    def forward(self, x):
        h = self.f(x)
        with torch.autocast("cuda", enabled=False):
            return self.g(h.float())
net = Stable().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP168",
                '        with torch.autocast("cuda", enabled=False):\n            return self.g(h.float())',
                "        return self.g(h.float())",
            ),
        ),
    ),
    "unused_update": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 10)
scaler = torch.amp.GradScaler("cuda")
for epoch in range(10):
    for x in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean()
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(opt)
        scaler.update()
        skipped = scaler.get_scale() < scale
        if not skipped:
            sched.step()
""",
        (
            ("MP213", "        opt.zero_grad()\n", "        opt.zero_grad()\n        sched.step()\n"),
            ("MP214", "        scaler.step(opt)\n", "        scaler.step(opt)\n        scaler.unscale_(opt)\n"),
            ("MP020", "        if not skipped:\n            sched.step()", "        sched.step()"),
        ),
    ),
    "ranks": (
        """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = dist.get_rank()
net = DDP(nn.Linear(4, 4).cuda())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    bad = torch.isnan(loss).float()
    dist.all_reduce(bad)
    if bad > 0:
        continue
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP161",
                "    bad = torch.isnan(loss).float()\n    dist.all_reduce(bad)\n    if bad > 0:\n        continue\n",
                "    if torch.isnan(loss):\n        continue\n",
            ),
        ),
    ),
    "ddp_hook": (
        """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
net = DDP(nn.Linear(4, 4).cuda())
net.register_comm_hook(None, default_hooks.bf16_compress_hook)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "linalg": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
class Whiten(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(16, 16)
    def forward(self, x):
        h = self.f(x)
        cov = (h.t() @ h).float() / len(h) + 1e-3 * torch.eye(16, device=h.device)
        with torch.autocast("cuda", enabled=False):
            L = torch.linalg.cholesky(cov)
            return torch.linalg.solve_triangular(L, h.float().t(), upper=False).t()
net = Whiten().cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.cuda(), y.cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).square().mean()
    opt.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP053",
                'cov = (h.t() @ h).float() / len(h) + 1e-3 * torch.eye(16, device=h.device)\n        with torch.autocast("cuda", enabled=False):\n            L = torch.linalg.cholesky(cov)',
                'cov = h.t() @ h\n        with torch.autocast("cuda", enabled=False):\n            L = torch.linalg.cholesky(cov)',
            ),
        ),
    ),
    "half_pipeline": (
        """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).cuda().half().eval()
@torch.inference_mode()
def run(rows):
    x = torch.tensor(rows, device="cuda", dtype=torch.float16)
    return model(x).float().cpu().numpy()
print(run([[0.0] * 8]))
""",
        (("MP163", 'torch.tensor(rows, device="cuda", dtype=torch.float16)', 'torch.tensor(rows, device="cuda")'),),
    ),
    "two_optimizers_one_step": (
        """\
import torch
from torch import nn
enc, dec = nn.Linear(4, 4).cuda(), nn.Linear(4, 4).cuda()
oe, od = torch.optim.Adam(enc.parameters()), torch.optim.Adam(dec.parameters())
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    oe.zero_grad(); od.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(dec(enc(x)).float(), x)
    scaler.scale(loss).backward()
    scaler.step(oe)
    scaler.step(od)
    scaler.update()
""",
        (("MP209", "    scaler.step(od)\n", ""),),
    ),
    "default_dtype": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(x).float().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (("MP098", "net = nn.Linear", "torch.set_default_dtype(torch.bfloat16)\nnet = nn.Linear"),),
    ),
    "checkpoint_fn": (
        """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
body, head = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda(), nn.Linear(4, 2).cuda()
opt = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        h = checkpoint(body, x, use_reentrant=False)
        loss = nn.functional.cross_entropy(head(h), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "losses_list": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 2).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    losses = []
    with torch.autocast("cuda", dtype=torch.float16):
        for x, y in batch:
            losses.append(nn.functional.cross_entropy(net(x), y))
    loss = torch.stack(losses).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP144",
                "losses.append(nn.functional.cross_entropy(net(x), y))\n    loss = torch.stack(losses).mean()",
                "losses.append(nn.functional.cross_entropy(net(x), y).item())\n    loss = torch.tensor(losses, requires_grad=True).mean()",
            ),
        ),
    ),
    "detached_feats": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Linear(4, 2).cuda()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x)
    loss = criterion(out.float(), y)
    loss.backward()
    opt.step()
""",
        (("MP144", "loss = criterion(out.float(), y)", "loss = criterion(out.detach().float().requires_grad_(), y)"),),
    ),
    "fp16_fn": (
        """\
import torch
from torch import nn
class Trainer:
    def __init__(self, model, lr):
        self.model, self.opt = model, torch.optim.AdamW(model.parameters(), lr=lr)
        self.crit = nn.CrossEntropyLoss()
    def step(self, batch):
        x, y = batch
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = self.crit(self.model(x), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()
def fit(model, loader, lr=1e-3):
    t = Trainer(model, lr)
    for b in loader:
        print(t.step(b))
""",
        (
            ("MP001", "torch.bfloat16", "torch.float16"),
            (
                "MP144",
                "loss = self.crit(self.model(x), y)",
                "loss = self.crit(self.model(x).detach(), y).requires_grad_()",
            ),
            (
                "MP144",
                "        loss.backward()\n",
                "        loss = torch.autograd.Variable(loss.data, requires_grad=True)\n        loss.backward()\n",
            ),
        ),
    ),
    "meter": (
        """\
import torch
from torch import nn
class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1, dtype=torch.float32))
        self.count = torch.tensor(0.0)
    def update(self, value, n):
        self.total += value.detach() * n
        self.count = self.count + n
net = nn.Linear(4, 2).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
m = Average().cuda()
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    m.update(loss, len(x))
""",
        (
            ("MP068", "torch.zeros(1, dtype=torch.float32)", "torch.zeros(1, dtype=torch.float16)"),
            ("MP068", "torch.tensor(0.0)", "torch.tensor(0.0, dtype=torch.bfloat16)"),
        ),
    ),
    "half_parts": (
        """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3)
        self.blocks = nn.ModuleList([nn.Conv2d(width, width, 3) for _ in range(4)])
        self.head = nn.Linear(width, 10)
    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x).relu()
        return self.head(x.mean((2, 3)))
net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            (
                "MP084",
                "        self.head = nn.Linear(width, 10)",
                "        self.head = nn.Linear(width, 10)\n        self.stem.half()",
            ),
            ("MP084", "net = Net().cuda()", "net = Net().cuda()\nnet.head.half()"),
            ("MP084", "net = Net().cuda()", "net = Net().cuda()\nnet.blocks.to(torch.float16)"),
            ("MP084", "nn.Conv2d(3, width, 3)", "nn.Conv2d(3, width, 3, dtype=torch.float16)"),
        ),
    ),
    "ema_swap": (
        """\
import torch
from torch import nn
class EMA:
    def __init__(self, net):
        self.net = net
        self.shadow = [p.detach().clone() for p in net.parameters()]
    @torch.no_grad()
    def swap(self):
        for p, s in zip(self.net.parameters(), self.shadow):
            t = p.detach().clone()
            p.copy_(s)
            s.copy_(t)
net = nn.Linear(4, 4).cuda()
ema = EMA(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(x).float().mean()
    ema.swap()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        t = net(x).detach()
    ema.swap()
    opt.zero_grad()
    (loss + t.float().mean()).backward()
    opt.step()
""",
        (
            (
                "MP088",
                '        loss = net(x).float().mean()\n    ema.swap()\n    with torch.autocast("cuda", dtype=torch.bfloat16):\n        t = net(x).detach()\n    ema.swap()',
                "        loss = net(x).float().mean()\n        ema.swap()\n        t = net(x).detach()\n        ema.swap()",
            ),
        ),
    ),
    "linalg_cuda": (
        """\
import torch
from torch import nn
class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        h = self.a(x)
        g = (h.transpose(-1, -2) @ h).float()
        return torch.linalg.eigvalsh(g).sum() + torch.linalg.svdvals(h.float()).sum() + torch.linalg.det(g)
net = G().cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (
            ("MP053", "(h.transpose(-1, -2) @ h).float()", "h.transpose(-1, -2) @ h"),
            ("MP053", "torch.linalg.svdvals(h.float())", "torch.linalg.svdvals(h)"),
        ),
    ),
    "bf16_infer": (
        """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3)
    def forward(self, x):
        return self.c(x).mean()
net = Net().eval().bfloat16()
with torch.no_grad():
    print(net(torch.rand(1, 3, 8, 8).bfloat16()))
""",
        (("MP163", ".bfloat16()))", "))"),),
    ),
    "rank_steps": (
        """\
import torch
import torch.distributed as dist
from torch import nn
def work(rank, world):
    dist.init_process_group("nccl", rank=rank, world_size=world)
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).to(rank))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    steps = 100
    for i in range(steps):
        x = torch.randn(8, 4, device=rank)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean()
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
""",
        (("MP160", "range(steps)", "range(steps + rank)"),),
    ),
    "pairwise": (
        """\
import torch
from torch import nn
def dist(z, eps=1e-6):
    d = z.unsqueeze(1) - z.unsqueeze(0)
    return torch.sqrt((d ** 2).sum(dim=-1) + eps)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)
    def forward(self, x):
        return dist(self.f(x).float())
net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP045", " + eps)", ")"),),
    ),
    "scaled_by_hand": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
S = 1024.0
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    opt.zero_grad()
    (loss * S).backward()
    for p in net.parameters():
        p.grad.div_(S)
    opt.step()
""",
        (),
    ),
    "functional_state": (
        """\
import torch
from torch import nn
def make(cfg):
    net = nn.Linear(4, 4).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=cfg["lr"])
    scaler = torch.amp.GradScaler("cuda", enabled=cfg["amp"])
    return net, opt, scaler
def train_step(state, x):
    net, opt, scaler = state
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = net(x).float().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    return loss
state = make({"lr": 0.1, "amp": True})
losses = [train_step(state, x).item() for x in loader]
""",
        (
            ("MP002", "    scaler.unscale_(opt)\n", ""),
            ("MP005", "    scaler.update()\n", ""),
            ("MP003", "scaler.step(opt)", "opt.step()"),
            ("MP004", "scaler.scale(loss).backward()", "loss.backward()"),
            ("MP146", "    opt.zero_grad()\n", ""),
        ),
    ),
    "abc_trainer": (
        """\
import abc
import torch
from torch import nn
class Base(abc.ABC):
    def __init__(self, net):
        self.net = net
        self.optimizer = self.make_optimizer()
        self.scaler = torch.amp.GradScaler("cuda")
    @abc.abstractmethod
    def make_optimizer(self): ...
    @abc.abstractmethod
    def loss(self, batch): ...
    def before_step(self):
        pass
    def run(self, loader):
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.loss(batch)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            self.before_step()
            self.scaler.step(self.optimizer)
            self.scaler.update()
class Mine(Base):
    def make_optimizer(self):
        return torch.optim.Adam(self.net.parameters())
    def loss(self, batch):
        return self.net(batch).float().mean()
    def before_step(self):
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
Mine(nn.Linear(4, 4).cuda()).run(loader)
""",
        (
            ("MP002", "            self.scaler.unscale_(self.optimizer)\n", ""),
            ("MP005", "            self.scaler.update()\n", ""),
        ),
    ),
    "hooks_mixin": (
        """\
import torch
from torch import nn
class Clip:
    def __call__(self, trainer):
        trainer.scaler.unscale_(trainer.opt)
        nn.utils.clip_grad_norm_(trainer.net.parameters(), 1.0)
class Log:
    def __call__(self, trainer):
        print(trainer.last)
class Trainer:
    def __init__(self, net, before=(), after=()):
        self.net, self.before, self.after = net, before, after
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def run(self, loader):
        for batch in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                self.last = self.net(batch).float().mean()
            self.scaler.scale(self.last).backward()
            for hook in self.before:
                hook(self)
            self.scaler.step(self.opt)
            self.scaler.update()
            for hook in self.after:
                hook(self)
Trainer(nn.Linear(3, 3).cuda(), before=[Clip()], after=[Log()]).run(loader)
""",
        (("MP002", "        trainer.scaler.unscale_(trainer.opt)\n", ""),),
    ),
    "try_oom": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    try:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean()
        scaler.scale(loss).backward()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        opt.zero_grad()
        continue
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "amp_level_dict": (
        """\
import torch
from torch import nn
AMP = {"O0": (False, torch.float32), "O1": (True, torch.float16), "O2": (True, torch.bfloat16)}
def main(level="O1"):
    use, dtype = AMP[level]
    net = nn.Linear(4, 4).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=use and dtype == torch.float16)
    for x in loader:
        opt.zero_grad()
        with torch.autocast("cuda", enabled=use, dtype=dtype):
            loss = net(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
main()
""",
        (),
    ),
    "last_partial": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
K = 8
for epoch in range(3):
    opt.zero_grad()
    pending = 0
    for i, x in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean() / K
        scaler.scale(loss).backward()
        pending += 1
        if pending == K:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            pending = 0
    if pending:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
        (),
    ),
    "multi_loss_backward": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        a = net(x).float().mean()
        b = net(y).float().mean()
    scaler.scale(a).backward(retain_graph=True)
    scaler.scale(b).backward()
    scaler.step(opt)
    scaler.update()
""",
        (("MP004", "    scaler.scale(b).backward()", "    b.backward()"),),
    ),
    "alt_freq": (
        """\
import torch
from torch import nn
G, D = nn.Linear(2, 2).cuda(), nn.Linear(2, 1).cuda()
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    z = torch.randn_like(x)
    if i % 6 != 5:
        od.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = D(G(z).detach()).mean() - D(x).mean()
        scaler.scale(loss.float()).backward()
        scaler.step(od)
    else:
        og.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = -D(G(z)).mean()
        scaler.scale(loss.float()).backward()
        scaler.step(og)
    scaler.update()
""",
        (),
    ),
    "call_update": (
        """\
import torch
from torch import nn
class Update:
    def __call__(self, t):
        t.scaler.update()
class Trainer:
    def __init__(self, net, after):
        self.net, self.after = net, after
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def run(self, loader):
        for batch in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.net(batch).float().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            for hook in self.after:
                hook(self)
Trainer(nn.Linear(3, 3).cuda(), after=[Update()]).run(loader)
""",
        (),
    ),
    "call_update2": (
        """\
import torch
from torch import nn
from mycallbacks import build
class Trainer:
    def __init__(self, net, callbacks):
        self.net, self.callbacks = net, callbacks
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def fire(self, event):
        for c in self.callbacks:
            getattr(c, event)(self)
    def run(self, loader):
        for batch in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.net(batch).float().mean()
            self.scaler.scale(loss).backward()
            self.fire("before_step")
            self.scaler.step(self.opt)
            self.fire("after_step")
Trainer(nn.Linear(3, 3).cuda(), build()).run(loader)
""",
        (),
    ),
    "call_update3": (
        """\
import torch
from torch import nn
from mycallbacks import on_step
net = nn.Linear(3, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
state = {"net": net, "opt": opt, "scaler": scaler}
for batch in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(batch).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    on_step(state)
""",
        (),
    ),
    "disabled_state_ok": (
        """\
import torch
scaler = torch.amp.GradScaler("cuda", enabled=False)
other = torch.amp.GradScaler("cuda", enabled=False)
other.load_state_dict(scaler.state_dict())
third = torch.amp.GradScaler("cuda")
third.load_state_dict(torch.load("x.pt"))
""",
        (),
    ),
    "fisher": (
        """\
import torch
from torch import nn
net = nn.Linear(2, 2).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
fisher = [torch.zeros_like(p) for p in net.parameters()]
for x in loader:
    net.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    inv = 1.0 / scaler.get_scale()
    for f, p in zip(fisher, net.parameters()):
        f += (p.grad * inv) ** 2
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "half_frozen_teacher": (
        """\
import torch
from torch import nn
class Wrap(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(4, 4).half()
        self.student = nn.Linear(4, 4)
        for p in self.teacher.parameters():
            p.requires_grad = False
    def forward(self, x):
        return self.student(x), self.teacher(x)
net = Wrap().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        s, t = net(x)
        loss = nn.functional.mse_loss(s.float(), t.float())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "half_then_float": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda().half()
net.load_state_dict(torch.load("half.pt"))
net.float()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "item_as_weight": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
ema = None
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x)
    base = nn.functional.mse_loss(out.float(), y)
    scale = base.detach().clamp_min(1.0)
    w = torch.tensor(base.item())
    loss = base / scale + w * 0 + out.float().detach().mean() * base
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "learn_tensor": (
        """\
import torch
w = torch.tensor([0.5, 1.0], requires_grad=True)
b = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
for x, y in loader:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = x @ torch.diag(w)
    loss = ((out.float() + b - y) ** 2).mean() + 0.1 * (w ** 2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "learn_tensor2": (
        """\
import torch
log_alpha = torch.tensor(0.0, requires_grad=True)
alpha_opt = torch.optim.Adam([log_alpha], lr=3e-4)
target = -2.0
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        logp = actor(batch)
    alpha_loss = -(log_alpha * (logp.float() + target).detach()).mean()
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()
""",
        (),
    ),
    "meta_maml": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
outer = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
def adapt(fast, x, y, lr=0.1):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(torch.func.functional_call(net, fast, x), y)
    scaled = scaler.scale(loss)
    grads = torch.autograd.grad(scaled, list(fast.values()), create_graph=True)
    inv = 1.0 / scaler.get_scale()
    return {k: v - lr * g * inv for (k, v), g in zip(fast.items(), grads)}
for (xs, ys), (xq, yq) in loader:
    fast = adapt(dict(net.named_parameters()), xs, ys)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(torch.func.functional_call(net, fast, xq), yq)
    outer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(outer)
    scaler.update()
""",
        (),
    ),
    "micro_nested": (
        """\
import torch
from torch import nn
net = nn.Linear(2, 2).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
def batches(loader, k):
    group = []
    for b in loader:
        group.append(b)
        if len(group) == k:
            yield group
            group = []
    if group:
        yield group
for group in batches(loader, 4):
    opt.zero_grad(set_to_none=True)
    for x in group:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean() / len(group)
        scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "scalers_and_optimizers_zipped": (
        """\
import torch
from torch import nn
models = {k: nn.Linear(2, 2).cuda() for k in ("a", "b")}
opts = {k: torch.optim.Adam(m.parameters()) for k, m in models.items()}
scalers = {k: torch.amp.GradScaler("cuda") for k in models}
for x in loader:
    for k in models:
        opts[k].zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = models[k](x).float().mean()
        scalers[k].scale(loss).backward()
    for scaler, opt in zip(scalers.values(), opts.values()):
        scaler.step(opt)
        scaler.update()
""",
        (),
    ),
    "multi_opt_dict": (
        """\
import torch
from torch import nn
models = {"a": nn.Linear(2, 2).cuda(), "b": nn.Linear(2, 2).cuda()}
opts = {k: torch.optim.Adam(m.parameters()) for k, m in models.items()}
scalers = {k: torch.amp.GradScaler("cuda") for k in models}
for x in loader:
    for k in models:
        opts[k].zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = models[k](x).float().mean()
        scalers[k].scale(loss).backward()
        scalers[k].unscale_(opts[k])
        nn.utils.clip_grad_norm_(models[k].parameters(), 1.0)
        scalers[k].step(opts[k])
        scalers[k].update()
""",
        (),
    ),
    "pairs_masked": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        z = net(x)
    z = z.float()
    d2 = (z[:, None] - z[None]).pow(2).sum(-1)
    off = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
    loss = d2[off].sqrt().mean()
    with torch.no_grad():
        spread = (x[:, None] - x[None]).pow(2).sum(-1).sqrt().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "pairs_of_data": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for pos, y in loader:
    d = (pos[:, None] - pos[None]).pow(2).sum(-1).sqrt()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(d).float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "partial_update_now": (
        """\
import torch
from torch import nn
class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")
    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, update_grad=True):
        self._scaler.scale(loss).backward()
        if update_grad:
            self._scaler.unscale_(optimizer)
            if clip_grad is not None:
                norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
            else:
                norm = None
            self._scaler.step(optimizer)
            self._scaler.update()
        else:
            norm = None
        return norm
    def state_dict(self):
        return self._scaler.state_dict()
    def load_state_dict(self, s):
        self._scaler.load_state_dict(s)
def train(model, loader, optimizer, loss_scaler, accum_iter, max_norm):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x), y)
        loss /= accum_iter
        loss_scaler(loss, optimizer, clip_grad=max_norm, parameters=model.parameters(), update_grad=(i + 1) % accum_iter == 0)
        if (i + 1) % accum_iter == 0:
            optimizer.zero_grad()
model = nn.Linear(2, 2).cuda()
train(model, loader, torch.optim.AdamW(model.parameters()), NativeScaler(), 4, 1.0)
""",
        (),
    ),
    "phases": (
        """\
import torch
from torch import nn
backbone, head = nn.Linear(4, 4).cuda(), nn.Linear(4, 2).cuda()
scaler = torch.amp.GradScaler("cuda")
def run(params, epochs, lr):
    opt = torch.optim.SGD(params, lr=lr)
    for _ in range(epochs):
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(head(backbone(x)), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
run(head.parameters(), 2, 0.1)
run([*backbone.parameters(), *head.parameters()], 5, 0.01)
""",
        (),
    ),
    "property_scaler": (
        """\
import torch
from torch import nn
class T:
    def __init__(self, net):
        self.net = net
        self._opt = torch.optim.Adam(net.parameters())
        self._scaler = None
    @property
    def opt(self):
        return self._opt
    @property
    def scaler(self):
        if self._scaler is None:
            self._scaler = torch.amp.GradScaler("cuda")
        return self._scaler
    def fit(self, loader):
        for b in loader:
            self.opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.net(b).float().mean()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.scaler.step(self.opt)
            self.scaler.update()
T(nn.Linear(2, 2).cuda()).fit(loader)
""",
        (),
    ),
    "resume_first": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for step in range(5, 100):
    if step > 5 and step % 4 == 0:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(next(it)).float().mean() / 4
    scaler.scale(loss).backward()
""",
        (),
    ),
    "self_trainer": (
        """\
import torch
from torch import nn
from base import BaseTrainer
class T(BaseTrainer):
    def build(self):
        self.net = nn.Linear(3, 3).cuda()
        self.opt = torch.optim.Adam(self.net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def train_step(self, batch):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(batch).float().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.finish_step()
""",
        (),
    ),
    "shared_if": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
adam = torch.optim.Adam(net.parameters(), lr=0.1)
sgd = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    adam.zero_grad(); sgd.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    if i < 100:
        scaler.step(adam)
    else:
        scaler.step(sgd)
    scaler.update()
""",
        (),
    ),
    "shared_two_opts": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 4).cuda()
fast = torch.optim.SGD(net.parameters(), lr=0.1)
slow = torch.optim.SGD(net.parameters(), lr=0.001)
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    opt = fast if i < 100 else slow
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "super_step": (
        """\
import torch
from torch import nn
class Base:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def step(self):
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad()
class Clipped(Base):
    def step(self):
        self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        super().step()
    def fit(self, loader):
        for b in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.net(b).float().mean()
            self.scaler.scale(loss).backward()
            self.step()
Clipped(nn.Linear(2, 2).cuda()).fit(loader)
""",
        (),
    ),
    "weight_groups": (
        """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).cuda()
decay = [p for n, p in net.named_parameters() if p.ndim > 1]
rest = [p for n, p in net.named_parameters() if p.ndim <= 1]
muon, adam = torch.optim.SGD(decay, lr=0.1), torch.optim.AdamW(rest, lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    for o in (muon, adam):
        o.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x).float().mean()
    scaler.scale(loss).backward()
    for o in (muon, adam):
        scaler.step(o)
    scaler.update()
""",
        (),
    ),
    "actor_critic": (
        """\
import torch
from torch import nn
actor, critic = nn.Linear(4, 2).cuda(), nn.Linear(4, 1).cuda()
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
scaler = torch.amp.GradScaler("cuda")
for obs, act, ret in dataset:
    with torch.autocast("cuda", dtype=torch.float16):
        logits, value = actor(obs), critic(obs)
    adv = (ret - value.detach()).float()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    logp = logits.float().log_softmax(-1).gather(1, act)
    loss = -(logp * adv).mean() + 0.5 * nn.functional.mse_loss(value.float(), ret)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "aux_counter": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
loss_sum = torch.zeros((), device="cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    loss_sum += loss.detach()
    reg = torch.tensor(0.0, device="cuda")
    for p in net.parameters():
        reg = reg + p.pow(2).sum()
    opt.zero_grad()
    scaler.scale(loss + 1e-4 * reg).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "class_ctx": (
        """\
import torch
from torch import nn
class Step:
    def __init__(self, opt, scaler):
        self.opt, self.scaler = opt, scaler
    def __enter__(self):
        self.opt.zero_grad()
        return self
    def __exit__(self, *exc):
        self.scaler.step(self.opt)
        self.scaler.update()
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with Step(opt, scaler) as s:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), y)
        s.scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
""",
        (),
    ),
    "ctx_manager": (
        """\
import contextlib
import torch
from torch import nn
@contextlib.contextmanager
def optimising(opt, scaler):
    opt.zero_grad()
    yield
    scaler.step(opt)
    scaler.update()
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with optimising(opt, scaler):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
""",
        (),
    ),
    "embeddings_leaf": (
        """\
import torch
from torch import nn
table = torch.randn(100, 8, device="cuda").requires_grad_()
opt = torch.optim.SparseAdam([table]) if False else torch.optim.Adam([table], lr=0.1)
for idx, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        e = table[idx]
    loss = (e.float().sum(1) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "fill_tensor": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
for a, b in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        x, y = net(a), net(b)
    parts = torch.tensor([0.0, 0.0], device="cuda")
    parts[0] = x.float().mean()
    parts[1] = y.float().mean()
    loss = parts.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "fn_on_detached": (
        """\
import torch
from torch import nn
G, D = nn.Linear(4, 4).cuda(), nn.Linear(4, 1).cuda()
od = torch.optim.Adam(D.parameters())
scaler = torch.amp.GradScaler("cuda")
def d_loss(fake, real):
    return D(fake).mean() - D(real).mean()
for real in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        fake = G(torch.randn(4, 4, device="cuda")).detach()
        loss = d_loss(fake, real)
    od.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(od)
    scaler.update()
""",
        (),
    ),
    "gauss_params": (
        """\
import torch
pos = torch.as_tensor(load_points()).float().cuda().requires_grad_(True)
opt = torch.optim.Adam([{"params": [pos], "lr": 1e-3}])
for y in loader:
    with torch.autocast("cuda", dtype=torch.float16, enabled=False):
        img = render(pos)
    loss = (img - y).abs().mean() + 0.1 * (pos ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "gen_loop": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
def stepping(loader):
    for batch in loader:
        opt.zero_grad()
        yield batch
        scaler.step(opt)
        scaler.update()
for x, y in stepping(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
""",
        (),
    ),
    "half_export": (
        """\
import copy
import torch
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for epoch in range(3):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    torch.save(copy.deepcopy(net).half().state_dict(), "half.pt")
""",
        (),
    ),
    "kd_data": (
        """\
import torch
from torch import nn
import torch.nn.functional as F
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for batch in train_loader:
    x = batch["x"].cuda()
    with torch.no_grad():
        soft = F.softmax(net(x).float(), -1)
    with torch.autocast("cuda", dtype=torch.float16):
        out = net(x)
        loss = F.kl_div(F.log_softmax(out.float(), -1), soft, reduction="batchmean")
        loss = loss + F.cross_entropy(out, batch["y"].cuda())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "pinn": (
        """\
import torch
from torch import nn
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).cuda()
opt = torch.optim.Adam(net.parameters())
for _ in range(1000):
    xt = torch.rand(256, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=False):
        u = net(xt)
    du, = torch.autograd.grad(u.sum(), xt, create_graph=True)
    loss = (du[:, 0] + u[:, 0] * du[:, 1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "reg_only": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x)
    reg = torch.tensor(0.0, device="cuda")
    for name, p in net.named_parameters():
        if "weight" in name:
            reg += p.abs().sum()
    loss = nn.functional.cross_entropy(out.detach().float(), y) * 0 + reg
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "sched_wrap": (
        """\
import torch
from torch import nn
from mylib import Manager
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
man = Manager(opt, scaler)
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    man.tick()
""",
        (),
    ),
    "split_backward": (
        """\
import torch
from torch import nn
body, head = nn.Linear(4, 4).cuda(), nn.Linear(4, 1).cuda()
opt = torch.optim.Adam([*body.parameters(), *head.parameters()])
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        h = body(x)
    cut = h.detach().requires_grad_()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(head(cut).float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    h.backward(cut.grad)
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "sum_of_losses": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
for batches in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        batch_losses = [net(b).float().mean() for b in batches]
    total = torch.tensor(0.0, device="cuda")
    for loss in batch_losses:
        total = total + loss
    opt.zero_grad()
    total.backward()
    opt.step()
""",
        (),
    ),
    "threads_opt": (
        """\
import torch
from concurrent.futures import ThreadPoolExecutor
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
def step():
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
with ThreadPoolExecutor(1) as pool:
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        pool.submit(step).result()
""",
        (),
    ),
    "while_true": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 3).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
it, micro = 0, 0
while True:
    for m in range(4):
        x, y = get_batch()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), y) / 4
        scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad(set_to_none=True)
    it += 1
    if it > 1000:
        break
""",
        (),
    ),
    "dataclass_state": (
        """\
from dataclasses import dataclass, field
import torch
from torch import nn
@dataclass
class State:
    net: nn.Module
    opt: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: int = 0
def one(state: State, x):
    state.opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = state.net(x).float().mean()
    state.scaler.scale(loss).backward()
    state.scaler.step(state.opt)
    state.scaler.update()
    state.step += 1
net = nn.Linear(3, 3).cuda()
state = State(net, torch.optim.Adam(net.parameters()), torch.amp.GradScaler("cuda"))
for x in loader:
    one(state, x)
""",
        (),
    ),
    "ema_in_region_ok": (
        """\
import torch
from torch import nn
net, mean = nn.Linear(4, 4).cuda(), nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
@torch.no_grad()
def update(avg, model):
    for a, p in zip(avg.parameters(), model.parameters()):
        a.lerp_(p, 0.01)
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x)
        update(mean, net)
        with torch.no_grad():
            target = mean(x)
        loss = (out - target).float().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
        (),
    ),
    "inner_loop_mean": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
accum_steps = 4
def micro_loss(x):
    return net(x).float().mean() * (1 / accum_steps)
for _ in range(100):
    opt.zero_grad()
    for _ in range(accum_steps):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = micro_loss(next(it))
        scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "list_of_models": (
        """\
import torch
from torch import nn
models = [nn.Linear(4, 1).cuda() for _ in range(3)]
opts = [torch.optim.Adam(m.parameters()) for m in models]
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    losses = []
    with torch.autocast("cuda", dtype=torch.float16):
        for m in models:
            losses.append(nn.functional.mse_loss(m(x).float(), y))
    for o in opts:
        o.zero_grad()
    scaler.scale(sum(losses)).backward()
    for o in opts:
        scaler.step(o)
    scaler.update()
""",
        (),
    ),
    "max_steps_return": (
        """\
import torch
from torch import nn
def train(net, loader, max_steps, amp=True, clip=None, log=None):
    opt = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    step = 0
    while True:
        for x, y in loader:
            with torch.autocast("cuda", dtype=torch.float16, enabled=amp):
                loss = nn.functional.mse_loss(net(x).float(), y)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(opt)
                norm = nn.utils.clip_grad_norm_(net.parameters(), clip)
                if log:
                    log(norm=norm, loss=loss)
            scaler.step(opt)
            scaler.update()
            step += 1
            if step >= max_steps:
                return net
""",
        (),
    ),
    "per_sample": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for batch in loader:
    total = [torch.zeros_like(p) for p in net.parameters()]
    for x in batch:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean()
        scaler.scale(loss).backward()
        for t, p in zip(total, net.parameters()):
            g = p.grad / scaler.get_scale()
            t += g / max(1.0, g.norm())
    for t, p in zip(total, net.parameters()):
        p.grad = t
    opt.step()
    scaler.update()
""",
        (),
    ),
    "plugin": (
        """\
import torch
from torch import nn
from registry import build_optimizer_hook
class Runner:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters())
        self.loss_scaler = torch.amp.GradScaler("cuda")
        self._hooks = [build_optimizer_hook()]
    def call_hook(self, name):
        for h in self._hooks:
            getattr(h, name)(self)
    def train(self, loader):
        for x in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                self.outputs = self.net(x).float().mean()
            self.call_hook("after_train_iter")
    def resume(self, path):
        ck = torch.load(path)
        self.net.load_state_dict(ck["net"]); self.optimizer.load_state_dict(ck["opt"]); self.loss_scaler.load_state_dict(ck["scaler"])
""",
        (),
    ),
    "range_epochs": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
sched = torch.optim.lr_scheduler.StepLR(opt, 3)
START = 3
for epoch in range(START, 20):
    for i, x in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x).float().mean()
        opt.zero_grad()
        scaler.scale(loss).backward()
        if epoch > 5:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    sched.step()
""",
        (),
    ),
    "range_start": (
        """\
import torch
from torch import nn
net = nn.Linear(4, 1).cuda()
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
for step in range(10, 100):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(next(it)).float().mean() / 4
    scaler.scale(loss).backward()
    if step % 4 == 0:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
        (),
    ),
    "rank_batches": (
        """\
import torch
import torch.distributed as dist
from torch import nn
rank, world = dist.get_rank(), dist.get_world_size()
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).cuda())
opt = torch.optim.Adam(net.parameters())
scaler = torch.amp.GradScaler("cuda")
data = torch.randn(1024, 4)
for i in range(rank, 1024, world):
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(data[i : i + 1].cuda()).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
for i in range(1024 // world * rank, 1024 // world * (rank + 1)):
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(data[i : i + 1].cuda()).float().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
        (),
    ),
    "self_in_comp": (
        """\
import torch
from torch import nn
class T:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters())
        self.scaler = torch.amp.GradScaler("cuda")
    def _one(self, x, last):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(x).float().mean() / 4
        self.scaler.scale(loss).backward()
        if last:
            self.scaler.step(self.opt)
            self.scaler.update()
            self.opt.zero_grad()
        return loss.item()
    def fit(self, loader):
        return [self._one(x, i % 4 == 3) for i, x in enumerate(loader)]
T(nn.Linear(2, 2).cuda()).fit(loader)
""",
        (),
    ),
    "sharded_two_opts": (
        """\
import torch
from torch import nn
net = nn.ModuleDict({"body": nn.Linear(4, 4), "head": nn.Linear(4, 2)}).cuda()
opts = [torch.optim.AdamW(net["body"].parameters(), lr=1e-4), torch.optim.AdamW(net["head"].parameters(), lr=1e-3)]
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    for o in opts: o.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net["head"](net["body"](x)), y)
    scaler.scale(loss).backward()
    for o in opts: scaler.unscale_(o)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for o in opts: scaler.step(o)
    scaler.update()
""",
        (),
    ),
    "swa_two": (
        """\
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
net = nn.Linear(4, 4).cuda()
swa = AveragedModel(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched, swa_sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100), SWALR(opt, swa_lr=0.05)
scaler = torch.amp.GradScaler("cuda")
for epoch in range(100):
    for x, y in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(net(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    if epoch > 75:
        swa.update_parameters(net)
        swa_sched.step()
    else:
        sched.step()
update_bn(loader, swa)
""",
        (),
    ),
}
