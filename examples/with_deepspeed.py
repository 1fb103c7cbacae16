"""Digits in DeepSpeed, whose decisions are read: pip install 'mixprec[deepspeed,examples]'.

On a CPU: DS_ACCELERATOR=cpu python examples/with_deepspeed.py. DeepSpeed's fp16 needs a GPU, or a CPU with AVX512-FP16;
without either this trains in bf16.
"""

import os
import tempfile

os.environ.update(  # without a launcher: one process
    {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", **os.environ}
)

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from sklearn.datasets import load_digits
from torch import nn

from mixprec.integrations.deepspeed import LossScaleReader

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)

if not dist.is_initialized() and "MASTER_PORT" not in os.environ:
    store = f"file://{tempfile.mkdtemp()}/store"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
deepspeed.init_distributed()

half = get_accelerator().is_fp16_supported()
section = {"fp16": {"enabled": True, "initial_scale_power": 16}} if half else {"bf16": {"enabled": True}}
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), 1e-2),
    config={
        "train_micro_batch_size_per_gpu": 64,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        **section,
    },
)
reader = LossScaleReader(engine)
dtype = torch.float16 if half else torch.bfloat16

for _ in range(5):
    for chosen in torch.randperm(len(images)).split(64)[:-1]:
        logits = engine(images[chosen].to(engine.device, dtype))
        loss = nn.functional.cross_entropy(logits.float(), labels[chosen].to(engine.device))
        engine.backward(loss)
        engine.step()
        report = reader.read()

skipped, scale = engine.skipped_steps, report.scale_after
print(f"loss {loss.item():.3f}, {report.step + 1} steps, {skipped} skipped, loss scale {scale:g}")
dist.destroy_process_group()
