"""One process that trains in DeepSpeed engines and saves what it found: `deepspeed_program.py FOLDER`."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

from mixprec import GradScaler
from mixprec.errors import MisuseError
from mixprec.integrations.deepspeed import (
    LossScaleReader,
    export_scale,
    import_scale,
    loss_scale,
    refuse_second_decider,
    use_mixprec,
)

get_accelerator().is_fp16_supported = lambda: True  # DeepSpeed asks for AVX512-FP16; slower without it, not wrong

FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 2, "hysteresis": 1}}
AUTOCAST = {"torch_autocast": {"enabled": True, "dtype": "float16"}}
BF16 = {"bf16": {"enabled": True}}


def engine_of(stage: int, section: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        **section,
    }
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), 0.1), config=config)[0]


def weights(engine: Any) -> list[torch.Tensor]:
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return [p.detach().clone() for p in engine.module.parameters()]


def train(engine: Any, reader: LossScaleReader) -> list[dict[str, Any]]:
    """Eight micro-batches, the fourth of which overflows."""
    steps = []
    generator = torch.Generator().manual_seed(0)
    dtype = next(engine.module.parameters()).dtype
    for micro in range(8):
        before = weights(engine)
        x = torch.randn(4, 4, generator=generator).to(dtype)
        loss = 0.01 * engine(x).float().square().mean() * (float("inf") if micro == 3 else 1.0)
        engine.backward(loss)
        engine.step()
        report = reader.read()
        steps.append(
            {
                "reason": report.reason.value,
                "before": report.scale_before,
                "after": report.scale_after,
                "norm": report.grad_norm,
                "step": report.step,
                "moved": not all(map(torch.equal, before, weights(engine))),
                "skips": engine.skipped_steps,
                "engine says applied": engine.was_step_applied(),
            }
        )
    return steps


def refusal(engine: Any) -> str:
    try:
        refuse_second_decider(engine, GradScaler("cpu"))
    except MisuseError as error:
        return str(error)
    return ""


def case(name: str, stage: int, section: dict[str, Any], folder: Path) -> dict[str, Any]:
    engine = engine_of(stage, section)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reader = LossScaleReader(engine, folder=folder / f"{name} {stage}")
    found: dict[str, Any] = {
        "warned": " ".join(str(w.message) for w in caught if "mixprec" in type(w.message).__module__),
        "refused": refusal(engine),
    }
    if name == "autocast" and stage == 0:
        use_mixprec(engine)
    if name in ("fp16", "autocast"):
        found["steps"] = train(engine, reader)
    if name == "fp16":
        scaler = GradScaler("cpu")
        scaler.load_state_dict(export_scale(engine, "torch"))
        state = scaler.state_dict()
        found["exported"] = {
            "scale": scaler.get_scale(),
            "interval": scaler.get_growth_interval(),
            "clean": state["_growth_tracker"],
        }
        import_scale(engine, {**state, "scale": 64.0})
        found["imported"] = loss_scale(engine)
    reader.close()
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    deepspeed.init_distributed("gloo")
    cases = [("fp16", stage, FP16) for stage in (0, 1, 2, 3)]
    cases += [("autocast", 0, AUTOCAST), ("autocast", 1, AUTOCAST), ("bf16", 1, BF16), ("fp32", 0, {})]
    torch.save({f"{n} {s}": case(n, s, section, folder) for n, s, section in cases}, folder / "found.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
