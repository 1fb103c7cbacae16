"""Digits in Lightning's Trainer, in fp16 with mixprec's plugin: pip install 'mixprec[lightning,examples]'."""

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mixprec.integrations.lightning import MixprecPrecision

torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16, torch.tensor(digits.target))
plugin = MixprecPrecision("fp16-mixed", policy="uniform")


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2, fused=True)  # Lightning's plugin does not clip these
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 280)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def lr_scheduler_step(self, scheduler, metric):
        if plugin.report.applied:  # a schedule counts applied steps
            scheduler.step()


trainer = Trainer(
    max_epochs=10,
    plugins=[plugin],
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Digits(), DataLoader(data, 64, shuffle=True, drop_last=True))
report = plugin.report
print(f"loss {trainer.callback_metrics['loss']:.3f}, {report.step + 1} steps, loss scale {report.scale_after:g}")
