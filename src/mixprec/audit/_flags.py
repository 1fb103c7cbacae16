"""Switches of PyTorch that change how fast a step is, as they stood while it ran."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from mixprec.records import Location

__all__ = ["Flags", "flags_now"]


@dataclass(frozen=True)
class Flags:
    """`tf32` says whether float32 products on CUDA may run in TF32. `anomaly_at` is where anomaly detection came on."""

    anomaly: bool = False
    anomaly_checks_nan: bool = False
    deterministic: bool = False
    cudnn_benchmark: bool = False
    cudnn_deterministic: bool = False
    tf32: bool = False
    profiling: bool = False
    threads: int = 1
    anomaly_at: Location = field(default_factory=Location)
    deterministic_at: Location = field(default_factory=Location)


def flags_now() -> Flags:
    """**Cost**: host only."""
    return Flags(
        anomaly=torch.is_anomaly_enabled(),
        anomaly_checks_nan=torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
        cudnn_deterministic=bool(torch.backends.cudnn.deterministic),
        tf32=torch.get_float32_matmul_precision() != "highest",
        profiling=torch._C._autograd._profiler_enabled(),
        threads=torch.get_num_threads(),
    )
