"""Correct code in the many forms that people write it in: nothing is said about any of it."""

from __future__ import annotations

import pytest

from mixprec.lint import lint_source
from mixprec.records import Severity

HEALTHY = {
    "accumulation": """\
import torch
from torch.amp import autocast, GradScaler
scaler = GradScaler()
for epoch in epochs:
    for i, (input, target) in enumerate(data):
        with autocast(device_type='cuda', dtype=torch.float16):
            output = model(input)
            loss = loss_fn(output, target)
            loss = loss / iters_to_accumulate
        scaler.scale(loss).backward()
        if (i + 1) % iters_to_accumulate == 0:
            # may unscale_ here if desired
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
""",
    "penalty": """\
import torch
from torch.amp import autocast, GradScaler
scaler = GradScaler()
for epoch in epochs:
    for input, target in data:
        optimizer.zero_grad()
        with autocast(device_type='cuda', dtype=torch.float16):
            output = model(input)
            loss = loss_fn(output, target)
        scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
        inv_scale = 1./scaler.get_scale()
        grad_params = [p * inv_scale for p in scaled]
        with autocast(device_type='cuda', dtype=torch.float16):
            grad_norm = 0
            for grad in grad_params:
                grad_norm += grad.pow(2).sum()
            grad_norm = grad_norm.sqrt()
            loss = loss + grad_norm
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    "several_losses_and_optimizers": """\
import torch
from torch.amp import autocast
scaler = torch.amp.GradScaler()
for epoch in epochs:
    for input, target in data:
        optimizer0.zero_grad()
        optimizer1.zero_grad()
        with autocast(device_type='cuda', dtype=torch.float16):
            output0 = model0(input)
            output1 = model1(input)
            loss0 = loss_fn(2 * output0 + 3 * output1, target)
            loss1 = loss_fn(3 * output0 - 5 * output1, target)
        scaler.scale(loss0).backward(retain_graph=True)
        scaler.scale(loss1).backward()
        scaler.unscale_(optimizer0)
        scaler.step(optimizer0)
        scaler.step(optimizer1)
        scaler.update()
""",
    "run_ends_on_a_bad_loss": """\
import math, sys, torch
def train_one_epoch(model, criterion, data_loader, optimizer, device, epoch, max_norm=0, scaler=None):
    for samples, targets in data_loader:
        with torch.cuda.amp.autocast(enabled=scaler is not None, dtype=torch.float16):
            outputs = model(samples)
            loss_dict = criterion(outputs, targets)
            losses = sum(loss_dict[k] for k in loss_dict)
        loss_value = losses.item()
        if not math.isfinite(loss_value):
            print("Loss is {}, stopping training".format(loss_value))
            sys.exit(1)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(losses).backward()
            if max_norm > 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            losses.backward()
            if max_norm > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
""",
    "scaler_may_be_none": """\
import torch
def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema=None, scaler=None):
    model.train()
    for i, (image, target) in enumerate(data_loader):
        with torch.amp.autocast("cuda", enabled=scaler is not None, dtype=torch.float16):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            if args.clip_grad_norm is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if args.clip_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            optimizer.step()
        if model_ema and i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)
def main(args):
    scaler = torch.amp.GradScaler("cuda") if args.amp else None
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema, scaler)
        lr_scheduler.step()
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": lr_scheduler.state_dict(),
        }
        if scaler:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, "x.pth")
""",
    "two_scalers_gan": """\
import torch
g_scaler = torch.cuda.amp.GradScaler()
d_scaler = torch.cuda.amp.GradScaler()
def train_fn(disc, gen, loader, opt_disc, opt_gen, l1, bce, g_scaler, d_scaler):
    for idx, (x, y) in enumerate(loader):
        with torch.cuda.amp.autocast():
            y_fake = gen(x)
            D_loss = bce(disc(x, y)) + bce(disc(x, y_fake.detach()))
        disc.zero_grad()
        d_scaler.scale(D_loss).backward()
        d_scaler.step(opt_disc)
        d_scaler.update()
        with torch.cuda.amp.autocast():
            G_loss = bce(disc(x, y_fake)) + l1(y_fake, y)
        opt_gen.zero_grad()
        g_scaler.scale(G_loss).backward()
        g_scaler.step(opt_gen)
        g_scaler.update()
        if idx % 10 == 0:
            print(D_loss.item())
""",
    "micro_batches_in_an_inner_loop": """\
import os, torch
from contextlib import nullcontext
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
gradient_accumulation_steps = 40
grad_clip = 1.0
device_type = 'cuda' if 'cuda' in device else 'cpu'
ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
ctx = nullcontext() if device_type == 'cpu' else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == 'float16'))
optimizer = model.configure_optimizers(weight_decay, learning_rate, (beta1, beta2), device_type)
X, Y = get_batch('train')
while True:
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = (micro_step == gradient_accumulation_steps - 1)
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch('train')
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
    if iter_num > max_iters:
        break
""",
    "amp_flag_split": """\
import torch
def train(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.cuda.amp.GradScaler() if args.precision == "amp" else None
    autocast = (lambda: torch.cuda.amp.autocast(dtype=torch.float16)) if args.precision == "amp" else suppress
    for i, batch in enumerate(loader):
        optimizer.zero_grad()
        with autocast():
            loss = model(batch)
        if scaler is not None:
            scaler.scale(loss).backward()
            if args.norm is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.norm, norm_type=2.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if args.norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.norm, norm_type=2.0)
            optimizer.step()
""",
    "method_opt_step": """\
import torch
class Trainer:
    def __init__(self, args):
        self.use_amp = args.amp
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.use_amp)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.accum = args.accum
        self.step_count = 0
    def train_step(self, batch):
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.use_amp):
            loss = self.model(batch) / self.accum
        self.scaler.scale(loss).backward()
        self.step_count += 1
        if self.step_count % self.accum == 0:
            self.optimizer_step()
        return loss
    def optimizer_step(self):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
""",
    "caller_steps": """\
import torch
class Learner:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")
    def backward(self, loss):
        self.scaler.scale(loss).backward()
    def step(self, optimizer):
        self.scaler.step(optimizer)
    def update(self):
        self.scaler.update()
""",
    "bf16_or_fp16": """\
import torch
amp_dtype = torch.bfloat16 if args.bf16 else torch.float16
scaler = torch.amp.GradScaler("cuda", enabled=amp_dtype == torch.float16)
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=amp_dtype):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "skip_on_nan": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    if torch.isnan(loss):
        continue
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
    scaler.step(opt)
    scaler.update()
""",
    "rl_multi_phase": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for it in range(1000):
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.float16):
            c_loss = critic_loss(batch())
        critic_opt.zero_grad()
        scaler.scale(c_loss).backward()
        scaler.step(critic_opt)
        scaler.update()
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16):
            a_loss = actor_loss(batch())
        actor_opt.zero_grad()
        scaler.scale(a_loss).backward()
        scaler.step(actor_opt)
        scaler.update()
""",
    "manual_grad_none": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    for p in model.parameters():
        p.grad = None
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "model_zero_grad": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "apex": """\
from apex import amp
import torch
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for x in loader:
    optimizer.zero_grad()
    loss = model(x)
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
    optimizer.step()
""",
    "norm_after_unscale": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    total = sum(p.grad.norm(2) ** 2 for p in model.parameters() if p.grad is not None) ** 0.5
    scaler.step(opt)
    scaler.update()
""",
    "validation_inside": """\
import torch
scaler = torch.amp.GradScaler("cuda")
@torch.no_grad()
def validate(model):
    with torch.autocast("cuda", dtype=torch.float16):
        return sum(model(x).item() for x in val)
for epoch in range(10):
    for x in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    print(validate(model))
    sched.step()
""",
    "teacher_fp16_student_fp32": """\
import torch
for x in loader:
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
        t = teacher(x)
    s = student(x)
    loss = torch.nn.functional.mse_loss(s, t.float())
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "grad_hook_scaler_args": """\
import torch
from timm.utils import NativeScaler
def train_one_epoch(model, loader, optimizer, loss_scaler, max_norm, accum_iter):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        with torch.cuda.amp.autocast():
            loss = criterion(model(x), y)
        loss /= accum_iter
        loss_scaler(
            loss,
            optimizer,
            clip_grad=max_norm,
            parameters=model.parameters(),
            update_grad=(i + 1) % accum_iter == 0,
        )
        if (i + 1) % accum_iter == 0:
            optimizer.zero_grad()
""",
    "no_sync": """\
import torch, contextlib
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    is_accumulating = (i + 1) % args.accum != 0
    ctx = model.no_sync() if is_accumulating else contextlib.nullcontext()
    with ctx:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x) / args.accum
        scaler.scale(loss).backward()
    if not is_accumulating:
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
    "skip_counter": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        scaler.step(opt)
        sched.step()
    scaler.update()
""",
    "opt_wrapper_in_list": """\
import torch
scaler = torch.amp.GradScaler("cuda")
optimizers = [torch.optim.Adam(a.parameters()), torch.optim.SGD(b.parameters(), lr=1)]
for x in loader:
    [o.zero_grad() for o in optimizers]
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    for o in optimizers:
        scaler.unscale_(o)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    for o in optimizers:
        scaler.step(o)
    scaler.update()
""",
    "alternate_d_reg": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for i, real in enumerate(loader):
    opt_d.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        d_loss = D(real).mean()
    scaler.scale(d_loss).backward()
    if i % 16 == 0:
        with torch.autocast("cuda", dtype=torch.float16):
            r1 = reg(D, real)
        scaler.scale(r1).backward()
    scaler.step(opt_d)
    opt_g.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        g_loss = -D(G(z)).mean()
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
""",
    "step_returned": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scale = scaler.get_scale()
    scaler.update()
    skip_lr_sched = scale > scaler.get_scale()
    if not skip_lr_sched:
        sched.step()
""",
    "log_scale_undo": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaled_loss = scaler.scale(loss)
    scaled_loss.backward()
    scaler.step(opt)
    scaler.update()
    if i % 10 == 0:
        print(loss.item(), scaler.get_scale())
""",
    "lightning": """\
import torch, pytorch_lightning as pl
class M(pl.LightningModule):
    def __init__(self):
        self.automatic_optimization = False
    def training_step(self, batch, i):
        opt = self.optimizers()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self(batch)
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
""",
    "deepspeed": """\
import deepspeed, torch
engine, opt, _, _ = deepspeed.initialize(model=model, config=cfg)
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = engine(x)
    engine.backward(loss)
    engine.step()
""",
    "mixprec": """\
from mixprec import Precision
precision = Precision("fp16-mixed", optimizer, max_norm=1.0, accumulate=4)
for inputs, targets in loader:
    with precision.autocast():
        loss = loss_fn(model(inputs), targets)
    precision.backward(loss)
    report = precision.step()
    if report.applied:
        scheduler.step()
""",
    "frozen_scaler_resume": """\
import torch
scaler = torch.amp.GradScaler("cuda")
if args.resume:
    ckpt = torch.load(args.resume)
    model.load_state_dict(ckpt["model"]); opt.load_state_dict(ckpt["opt"])
    if "scaler" in ckpt:
        scaler.load_state_dict(ckpt["scaler"])
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
torch.save(dict(model=model.state_dict(), opt=opt.state_dict(), scaler=scaler.state_dict()), "x")
""",
    "cross_validation": """\
import torch
for fold in range(5):
    model = build().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
""",
    "lazy_scaler": """\
import torch
scaler = None
for x in loader:
    if scaler is None:
        scaler = torch.amp.GradScaler("cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "oom_retry": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    try:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    except RuntimeError as e:
        if "out of memory" in str(e):
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            continue
        raise
""",
    "two_losses": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        a, b = model(x)
    scaler.scale(a).backward(retain_graph=True)
    scaler.scale(b).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "aux_after_unscale": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        a = model(x)
    scaler.scale(a).backward()
    scaler.unscale_(optimizer)
    regulariser(model).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "trainer_with_hooks": """\
import torch
class Runner:
    def train_iter(self, batch):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            self.loss = self.model(batch)
        self.call_hook("after_forward")
        self.scaler.scale(self.loss).backward()
        self.call_hook("after_backward")
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
    "phases": """\
import torch
for it in range(100):
    for phase in phases:
        phase.opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = phase.loss(x)
        loss.backward()
        phase.opt.step()
""",
    "loss_scaled_by_hand": """\
import torch
LOSS_SCALE = 1024.0
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    (loss * LOSS_SCALE).backward()
    for p in model.parameters():
        p.grad.div_(LOSS_SCALE)
    opt.step()
""",
    "inference_only": """\
import torch
@torch.inference_mode()
def predict(model, loader):
    with torch.autocast("cuda", dtype=torch.float16):
        return [model(x) for x in loader]
""",
    "accelerate": """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="fp16")
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for x in loader:
    with accelerator.accumulate(model):
        loss = model(x)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
    "enabled_split": """\
import torch
use_scaler = args.amp and args.dtype == "float16"
scaler = torch.amp.GradScaler("cuda", enabled=use_scaler)
for i, x in enumerate(loader):
    with torch.autocast("cuda", dtype=getattr(torch, args.dtype), enabled=args.amp):
        loss = model(x)
    opt.zero_grad()
    if use_scaler:
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
    else:
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if use_scaler:
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
""",
    "is_enabled": """\
import torch
def step(scaler, opt, loss, model):
    scaler.scale(loss).backward()
    if scaler.is_enabled():
        scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
""",
    "closure_plain": """\
import torch
opt = torch.optim.LBFGS(model.parameters())
def closure():
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x)
    loss.backward()
    return loss
for i in range(10):
    opt.step(closure)
""",
    "update_new_scale": """\
import torch
scaler = torch.amp.GradScaler("cuda", growth_interval=100)
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if scaler._scale < 128:
        scaler._scale = torch.tensor(128).to(scaler._scale)
""",
    "epoch_accum_flush": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for epoch in range(3):
    for i, x in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x) / accum
        scaler.scale(loss).backward()
        if (i + 1) % accum == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    if (i + 1) % accum != 0:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
""",
    "step_at_head": """\
import torch
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    if i > 0 and i % accum == 0:
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x) / accum
    scaler.scale(loss).backward()
""",
    "dict_attr": """
import torch
class T:
    def __init__(self):
        self.optims = {"g": torch.optim.Adam(G.parameters()), "d": torch.optim.Adam(D.parameters())}
        self.scaler = torch.amp.GradScaler("cuda")
    def step(self, x):
        for name, opt in self.optims.items():
            opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            lg, ld = self.losses(x)
        self.scaler.scale(lg + ld).backward()
        for name, opt in self.optims.items():
            self.scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(self.nets[name].parameters(), 1.0)
            self.scaler.step(opt)
        self.scaler.update()
""",
    "keyed": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opts["g"].zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    scaler.scale(loss).backward()
    scaler.unscale_(opts["g"])
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opts["g"])
    scaler.update()
""",
    "next_iter": """
import torch
scaler = torch.amp.GradScaler("cuda")
it = iter(loader)
for step in range(1000):
    try:
        x = next(it)
    except StopIteration:
        it = iter(loader)
        x = next(it)
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "two_ifs_clip": """
import torch
def train(args, net, opt, loader):
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    for x in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
            loss = net(x)
        scaler.scale(loss).backward()
        if args.clip > 0:
            scaler.unscale_(opt)
        log(loss)
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        scaler.step(opt)
        scaler.update()
""",
    "tasks": """
import torch
scaler = torch.amp.GradScaler("cuda")
for batches in zip(*loaders):
    opt.zero_grad()
    for task, x in enumerate(batches):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x, task)
        scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "scaled_list": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        a, b = net(x)
    for l in scaler.scale([a, b]):
        l.backward(retain_graph=True)
    scaler.step(opt)
    scaler.update()
""",
    "scaled_sum": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        losses = net(x)
    scaled = {k: scaler.scale(v) for k, v in losses.items()}
    sum(scaled.values()).backward()
    scaler.step(opt)
    scaler.update()
""",
    "rl_env": """
import torch
scaler = torch.amp.GradScaler("cuda")
for ep in range(100):
    obs, done = env.reset(), False
    while not done:
        obs, r, done, _ = env.step(policy(obs))
        buffer.add(obs, r)
    for _ in range(4):
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = agent.loss(buffer.sample())
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    profiler.step()
""",
    "wrapper": """
import torch
class AmpOptimizer:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda")
    def zero_grad(self):
        self.optimizer.zero_grad()
    def backward(self, loss):
        self.scaler.scale(loss).backward()
    def clip(self, params, limit):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(params, limit)
    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
opt = AmpOptimizer(torch.optim.Adam(net.parameters()))
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    opt.backward(loss)
    opt.clip(net.parameters(), 1.0)
    opt.step()
""",
    "wrapper_only": """
import torch
class AmpOptimizer:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda")
    def zero_grad(self):
        self.optimizer.zero_grad()
    def backward(self, loss):
        self.scaler.scale(loss).backward()
    def clip(self, params, limit):
        torch.nn.utils.clip_grad_norm_(params, limit)
    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
    "d_plain_g_amp": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt_d.zero_grad()
    d_loss = D(x).mean()
    d_loss.backward()
    opt_d.step()
    opt_g.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        g_loss = -D(G(x)).mean()
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
""",
    "inner_maml": """
import torch
scaler = torch.amp.GradScaler("cuda")
for task in tasks:
    fast = clone(net)
    inner = torch.optim.SGD(fast.parameters(), lr=0.1)
    for _ in range(3):
        l = fast(task)
        inner.zero_grad()
        l.backward()
        inner.step()
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(task)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
""",
    "warmup_then_train": """
import torch
scaler = torch.amp.GradScaler("cuda")
def run_epoch(train):
    for x in loader:
        with torch.set_grad_enabled(train):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x)
        if train:
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
for e in range(10):
    run_epoch(True)
    run_epoch(False)
""",
    "accum_last_return": """
import torch
class Engine:
    def __init__(self, net, accum):
        self.scaler = torch.amp.GradScaler("cuda")
        self.optim = torch.optim.Adam(net.parameters())
        self.accum = accum
        self.count = 0
    def backward(self, loss):
        self.scaler.scale(loss / self.accum).backward()
        self.count += 1
        if self.count % self.accum:
            return False
        self.scaler.unscale_(self.optim)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.scaler.step(self.optim)
        self.scaler.update()
        self.optim.zero_grad(set_to_none=True)
        return True
""",
    "scaler_param_optional": """
import torch
def optimizer_step(optimizer, scaler=None, params=None, max_norm=None):
    if scaler is None:
        if max_norm: torch.nn.utils.clip_grad_norm_(params, max_norm)
        optimizer.step()
        return
    if max_norm:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(params, max_norm)
    scaler.step(optimizer)
    scaler.update()
""",
    "save_without_optimizer": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
torch.save(net.state_dict(), "net.pt")
""",
    "fp16_flag_three_way": """
import torch
for x in loader:
    opt.zero_grad()
    if args.precision == "fp16":
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
    elif args.precision == "bf16":
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x)
        loss.backward()
    else:
        loss = net(x)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if args.precision == "fp16":
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
""",
    "partial_update": """
import torch
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    if (i % 5) == 0:
        opt_g.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt_g)
        scaler.update()
    else:
        opt_d.zero_grad()
        scaler.scale(-loss).backward()
        scaler.step(opt_d)
        scaler.update()
""",
    "update_once_per_iteration_cond_opt": """
import torch
scaler = torch.amp.GradScaler("cuda")
for i, x in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        ld, lg = net(x)
    opt_d.zero_grad()
    scaler.scale(ld).backward()
    scaler.step(opt_d)
    if i % n_critic == 0:
        opt_g.zero_grad()
        scaler.scale(lg).backward()
        scaler.step(opt_g)
    scaler.update()
""",
    "skip_step_when_bad_unscaled": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    total_norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if total_norm < 1000:
        scaler.step(opt)
    else:
        opt.zero_grad()
    scaler.update()
""",
    "found_inf": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    states = scaler._per_optimizer_states[id(opt)]
    found_inf = sum(v.item() for v in states["found_inf_per_device"].values())
    scaler.step(opt)
    scaler.update()
    if not found_inf:
        sched.step()
""",
    "bf16_no_scaler_accum": """
import torch
for i, x in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = net(x) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
""",
    "cpu_default": """
import torch
for x in loader:
    opt.zero_grad()
    with torch.autocast(device_type="cpu"):
        loss = net(x)
    loss.backward()
    opt.step()
""",
    "device_variable": """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
for x in loader:
    opt.zero_grad()
    with torch.autocast(device):
        loss = net(x)
    loss.backward()
    opt.step()
""",
    "eval_autocast_file_with_train_fp32": """
import torch
def evaluate(net):
    net.eval()
    with torch.no_grad():
        with torch.autocast("cuda", dtype=torch.float16):
            return [net(x) for x in val]
def train(net, opt):
    for x in loader:
        loss = net(x).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    evaluate(net)
""",
    "grad_scaler_state_only": """
import torch
class Checkpointer:
    def state_dict(self):
        scaler = self.scaler.state_dict() if self.scaler else None
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "scaler": scaler}
    def train(self):
        self.scaler = torch.amp.GradScaler("cuda")
""",
    "hook_backward": """
import torch
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    opt.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    net.forward_backward(scaler, loss)
    scaler.step(opt)
    scaler.update()
""",
    "multi_epoch_two_stages": """
import torch
def stage(net, loader, lr):
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(x)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
stage(net, a, 0.1)
stage(net, b, 0.01)
""",
    "walrus_and_match": """
import torch
scaler = torch.amp.GradScaler("cuda")
while (x := next(it, None)) is not None:
    match mode:
        case "train":
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        case _:
            pass
""",
    "loss_scaler_custom": """
import torch
class DynamicLossScaler:
    def __init__(self): self.scale = 2.**16
    def update(self, overflow): self.scale = self.scale / 2 if overflow else self.scale * 2
scaler = DynamicLossScaler()
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = net(x)
    (loss * scaler.scale).backward()
    overflow = any(not torch.isfinite(p.grad).all() for p in net.parameters())
    if not overflow:
        for p in net.parameters():
            p.grad /= scaler.scale
        opt.step()
    opt.zero_grad()
    scaler.update(overflow)
""",
}


@pytest.mark.parametrize("name", HEALTHY)
def test_correct_code_gets_no_warning(name):
    """No rule of any kind warns about correct code."""
    found = lint_source(HEALTHY[name], f"{name}.py")

    assert [(f.code, f.location.line, f.message) for f in found if f.severity is not Severity.INFO] == []
