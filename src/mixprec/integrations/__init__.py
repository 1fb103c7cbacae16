"""Where people train: one file per stack, each an adapter of a few methods, imported only by those who use it.

| file | stack | what it gives |
| --- | --- | --- |
| `accelerate` | Hugging Face Accelerate | `MixprecAccelerator`, `use_mixprec` |
| `lightning` | Lightning Trainer and Fabric | `MixprecPrecision`, `MixprecFSDPPrecision`, `MixprecFabricPrecision` |
| `transformers` | the Transformers Trainer | `MixprecTrainer`, `MixprecCallback` |
| `deepspeed` | DeepSpeed | `LossScaleReader`, `export_scale`, `import_scale`, `refuse_second_decider` |

A missing package is one error that names the extra to install.
"""

from __future__ import annotations

__all__: list[str] = []
