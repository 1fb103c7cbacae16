"""A small classifier in the Transformers Trainer, in fp16: pip install 'mixprec[transformers,examples]'."""

import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import TrainingArguments

from mixprec.integrations.transformers import MixprecCallback, MixprecTrainer

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
data = [{"pixels": image, "labels": label} for image, label in zip(images, torch.tensor(digits.target), strict=True)]


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        fp16=True,
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=64,
        num_train_epochs=5,
        learning_rate=1e-2,
        logging_steps=29,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    watch = MixprecCallback()  # a folder in place of nothing keeps the run for `mixprec report`
    trainer = MixprecTrainer(Digits(), arguments, train_dataset=data, policy="uniform", callbacks=[watch])
    trainer.train()

last = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
print(f"loss {last['loss']:.3f}, {last['skipped_steps']} skipped, loss scale {last['loss_scale']:g}")
