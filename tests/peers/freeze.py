"""Runs other systems' own loss-scale code over random overflow streams and writes down the scales it produced.

Not a test: it made the files in `tests/loss_scale/frozen`. It executes the system's published source file unchanged, on
CPU; what that source needs from a GPU or from its framework is replaced, and the provenance in each file says by what.

    python tests/peers/freeze.py apex     .../apex/amp/scaler.py                      "Apex 24.04.01"
    python tests/peers/freeze.py megatron .../megatron/core/optimizer/grad_scaler.py  "megatron-core 0.16.1"
    python tests/peers/freeze.py paddle   .../python/paddle/amp/grad_scaler.py        "Paddle 00816fc"
    python tests/peers/freeze.py flax            -  "flax 0.12.8, jax 0.10.2"
    python tests/peers/freeze.py keras           -  "keras 3.15.1, torch 2.13.0"
    python tests/peers/freeze.py deepspeed-zero  -  "deepspeed 0.19.8"
    python tests/peers/freeze.py deepspeed-fp16  -  "deepspeed 0.19.8"

What is given as `-` is imported. A change of `null` is the step at which the system raised.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Update = Callable[[bool], float]
"""One step: whether gradients overflowed -> the scale after it."""

FROZEN = Path(__file__).parents[1] / "loss_scale" / "frozen"


def run_apex(source: str, p: dict[str, Any]) -> Update:
    import torch

    package = {"__name__": "apex.amp.scaler", "__package__": "apex.amp"}
    applier = types.SimpleNamespace(available=False, import_err="not built")
    for name in ("apex", "apex.amp"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["apex.multi_tensor_apply"] = types.ModuleType("apex.multi_tensor_apply")
    sys.modules["apex.multi_tensor_apply"].multi_tensor_applier = applier
    state = types.ModuleType("apex.amp._amp_state")
    state._amp_state, state.master_params, state.maybe_print = None, None, lambda *_: None
    sys.modules["apex.amp._amp_state"] = state
    torch.cuda.IntTensor = torch.IntTensor
    exec(compile(source, "scaler.py", "exec"), package)
    scaler = package["LossScaler"]("dynamic", **p)

    def update(found_inf: bool) -> float:
        scaler.clear_overflow_state()
        scaler._has_overflow = found_inf
        scaler.update_scale()
        return scaler.loss_scale()

    return update


def run_megatron(source: str, p: dict[str, Any]) -> Update:
    import torch

    on_cpu = types.SimpleNamespace(
        tensor=lambda data, dtype, device: torch.tensor(data, dtype=dtype), float=torch.float, max=torch.max
    )
    module: dict[str, Any] = {"__name__": "grad_scaler"}
    exec(compile(source, "grad_scaler.py", "exec"), module)
    module["torch"] = on_cpu
    scaler = module["DynamicGradScaler"](**p)

    def update(found_inf: bool) -> float:
        scaler.update(found_inf)
        return float(scaler.scale)

    return update


def run_paddle(source: str, p: dict[str, Any]) -> Update:
    import numpy as np

    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "AmpScaler"]
    method = next(node for node in classes[0].body if isinstance(node, ast.FunctionDef) and node.name == "_update")
    module: dict[str, Any] = {}
    exec(compile(ast.Module([method], []), "grad_scaler.py", "exec"), module)
    scaler = types.SimpleNamespace(_enable=True, _incr_count=0, _decr_count=0)
    for name, value in p.items():
        setattr(scaler, "_" + name, value)
    scaler._scale = np.float32(p["init_loss_scaling"])

    def update(found_inf: bool) -> float:
        scaler._cache_founf_inf = found_inf
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(over="ignore"):
            module["_update"](scaler)
        return float(scaler._scale)

    return update


def run_flax(_: str, p: dict[str, Any]) -> Update:
    import jax
    import jax.numpy as jnp
    from flax.training.dynamic_scale import DynamicScale

    held = [DynamicScale(**{**p, "scale": jnp.float32(p["scale"]), "fin_steps": jnp.int32(0)})]
    step = jax.jit(lambda scaler, x: scaler.value_and_grad(lambda w: w * 1.0)(x)[0])
    poisoned = jax.jit(lambda scaler, x: scaler.value_and_grad(lambda w: w * jnp.inf)(x)[0])

    def update(found_inf: bool) -> float:
        held[0] = (poisoned if found_inf else step)(held[0], jnp.float32(2.0**-130 if not found_inf else 1.0))
        return float(held[0].scale)

    return update


def run_keras(_: str, p: dict[str, Any]) -> Update:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    variable = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), **p)

    def update(found_inf: bool) -> float:
        gradient = keras.ops.convert_to_tensor([float("inf") if found_inf else 0.0, 0.0])
        optimizer.apply([gradient], [variable])
        return float(keras.ops.convert_to_numpy(optimizer.dynamic_scale.value))

    return update


def run_deepspeed_zero(_: str, p: dict[str, Any]) -> Update:
    import torch
    from deepspeed.runtime.fp16 import loss_scaler

    loss_scaler.dist.get_rank = lambda: 1
    scaler = loss_scaler.CreateLossScaler(torch.half, 0, True, p)

    def update(found_inf: bool) -> float:
        scaler.update_scale(found_inf)
        return float(scaler.cur_scale)

    return update


def run_deepspeed_fp16(_: str, p: dict[str, Any]) -> Update:
    import torch
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.loss_scaler import LossScaleConfig

    config = LossScaleConfig(torch.float16, True, 0, p)
    optimizer = types.SimpleNamespace(loss_scale_config=config, verbose=False)

    def update(found_inf: bool) -> float:
        FP16_Optimizer._update_scale(optimizer, found_inf)
        return float(config.cur_scale)

    return update


DEEPSPEED = ("init_scale", "scale_window", "delayed_shift", "consecutive_hysteresis", "min_scale")

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "apex": [
        {"init_scale": init, "scale_window": window, "min_loss_scale": low, "max_loss_scale": high}
        for init, window, low, high in [
            (2.0**16, 2000, None, 2.0**24),
            (2.0**16, 3, None, 2.0**24),
            (2.0**30, 2, None, 2.0**24),
            (1000.1, 1, 1.0, 2.0**18),
            (2.0**-1060, 5, None, 2.0**24),
            (3.3, 2, 0.7, 40.0),
        ]
    ],
    "megatron": [
        dict(
            zip(
                ("initial_scale", "min_scale", "growth_factor", "backoff_factor", "growth_interval", "hysteresis"),
                row,
                strict=True,
            )
        )
        for row in [
            (2.0**32, 1.0, 2.0, 0.5, 1000, 2),
            (2.0**16, 1.0, 2.0, 0.5, 3, 2),
            (2.0**10, 1.0, 2.0, 0.5, 2, 1),
            (2.0**10, 4.0, 2.0, 0.5, 4, 4),
            (1000.1, 0.1, 1.5, 0.25, 1, 3),
            (2.0**127, 1.0, 4.0, 0.75, 2, 2),
        ]
    ],
    "paddle": [
        dict(
            zip(
                (
                    "init_loss_scaling",
                    "incr_ratio",
                    "decr_ratio",
                    "incr_every_n_steps",
                    "decr_every_n_nan_or_inf",
                ),
                row,
                strict=True,
            )
        )
        for row in [
            (2.0**16, 2.0, 0.5, 2000, 1),
            (2.0**16, 2.0, 0.5, 3, 1),
            (2.0**16, 2.0, 0.5, 2, 2),
            (2.0**-140, 1.5, 0.5, 4, 3),
            (2.0**127, 2.0, 0.75, 1, 2),
            (1000.1, 4.0, 0.25, 5, 1),
        ]
    ],
    "keras": [
        {"initial_scale": 2.0**15, "dynamic_growth_steps": 2000},
        {"initial_scale": 2.0**15, "dynamic_growth_steps": 3},
        {"initial_scale": 2.0**126, "dynamic_growth_steps": 1},
        {"initial_scale": 2.0**-140, "dynamic_growth_steps": 2},
    ],
    "deepspeed-zero": [
        dict(zip(DEEPSPEED, row, strict=True))
        for row in [
            (2.0**16, 1000, 2, False, 1),
            (2.0**16, 3, 2, False, 1),
            (2.0**10, 2, 4, True, 1),
            (1000.1, 1, 1, False, 0.25),
        ]
    ],
    "deepspeed-fp16": [
        dict(zip(DEEPSPEED, row, strict=True)) for row in [(2.0**16, 1000, 2, False, 1), (1000.1, 3, 2, False, 0.25)]
    ],
    "flax": [
        {"scale": scale, "growth_factor": up, "backoff_factor": down, "growth_interval": interval, **more}
        for scale, up, down, interval, more in [
            (65536.0, 2.0, 0.5, 2000, {}),
            (65536.0, 2.0, 0.5, 2, {}),
            (65536.0, 2.0, 0.5, 1, {"minimum_scale": 1.0}),
            (2.0**126, 2.0, 0.5, 1, {}),
            (2.0**-124, 1.5, 0.25, 3, {}),
            (1000.1, 4.0, 0.75, 2, {"minimum_scale": 0.1}),
        ]
    ],
}

REPLACED = {
    "apex": "LossScaler.update_scale with _has_overflow set; torch.cuda.IntTensor is torch.IntTensor, no fused kernel",
    "megatron": "DynamicGradScaler.update; tensors are made on the CPU instead of 'cuda'",
    "paddle": "AmpScaler._update on a stand-in whose _scale is a numpy float32 instead of a float32 Paddle tensor",
    "keras": "LossScaleOptimizer.apply around SGD on the torch backend; nothing replaced",
    "deepspeed-zero": "CreateLossScaler(...).update_scale; no process group, so get_rank answers 1",
    "deepspeed-fp16": "FP16_Optimizer._update_scale on a stand-in that holds its LossScaleConfig",
    "flax": "DynamicScale.value_and_grad under jax.jit, gradients infinite or finite; nothing replaced",
}

RUN = {
    "apex": run_apex,
    "megatron": run_megatron,
    "paddle": run_paddle,
    "flax": run_flax,
    "keras": run_keras,
    "deepspeed-zero": run_deepspeed_zero,
    "deepspeed-fp16": run_deepspeed_fp16,
}


def streams(first: bool) -> Iterator[list[bool]]:
    """Four reproducible overflow streams: rare to nearly always, or long and very rare for a system's defaults."""
    steps, chances = (5000, (0.0, 0.0002, 0.0005, 0.001)) if first else (200, (0.03, 0.2, 0.5, 0.9))
    for seed, chance in enumerate(chances):
        stream = random.Random(seed)
        yield [stream.random() < chance for _ in range(steps)]


def freeze(system: str, source: str, version: str) -> dict[str, Any]:
    cases = []
    for index, parameters in enumerate(PARAMETERS[system]):
        for overflows in streams(index == 0):
            scale, changes = None, []
            update = RUN[system](source, parameters)
            for step, found_inf in enumerate(overflows):
                before = scale
                try:
                    scale = update(found_inf)
                except Exception as error:
                    if "already at minimum" not in str(error):
                        raise
                    changes.append([step, None])
                    break
                if scale != before:
                    changes.append([step, scale])
            where = [step for step, found_inf in enumerate(overflows) if found_inf]
            cases.append({"parameters": parameters, "steps": len(overflows), "overflows": where, "changes": changes})
    provenance = f"{version}: {REPLACED[system]}. Made by tests/peers/freeze.py, Python {sys.version.split()[0]}."
    return {"provenance": provenance, "cases": cases}


if __name__ == "__main__":
    system, path, version = sys.argv[1:]
    frozen = freeze(system, "" if path == "-" else Path(path).read_text(), version)
    lines = ",\n".join(json.dumps(case) for case in frozen["cases"])
    text = f'{{"provenance": {json.dumps(frozen["provenance"])}, "cases": [\n{lines}\n]}}\n'
    (FROZEN / f"{system}.json").write_text(text)
