"""A 16-bit dtype is worth choosing only where the hardware computes in it natively; emulation answers "supported" too.

`probe` looks at a device, `recommend` is a pure function of what it saw.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

__all__ = ["Recommendation", "Traits", "probe", "recommend"]


@dataclass(frozen=True)
class Traits:
    """What bears on the choice. `name` is how the device calls itself.

    `capability` is CUDA's compute capability, `architecture` ROCm's (`gfx90a`) or the CPU's (`x86_64`), `features` the
    CPU's 16-bit instruction sets.
    """

    kind: str
    name: str = ""
    capability: tuple[int, int] | None = None
    architecture: str = ""
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Recommendation:
    """The mode to train in, and why."""

    mode: str
    reason: str


def recommend(traits: Traits) -> Recommendation:
    """The mode that the hardware runs natively, preferring bf16, which needs no loss scale.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-capabilities and, for emulation behind
    `torch.cuda.is_bf16_supported()`, https://github.com/pytorch/pytorch/pull/148322
    """
    rule = _RULES.get(traits.kind, _unknown)
    mode, why = rule(traits)
    device = traits.name or traits.kind
    return Recommendation(mode, f"{mode} on {device}: {why}")


def probe(device: torch.device) -> Traits:
    """What `device` is. **Cost**: host only, a few driver queries."""
    if device.type == "cuda":
        return _probe_cuda(device)
    if device.type == "cpu":
        return Traits("cpu", _cpu_name(), architecture=platform.machine().lower(), features=_cpu_features())
    if device.type == "xpu":
        return Traits("xpu", torch.xpu.get_device_name(device))
    return Traits(device.type, device.type)


# ── what each kind of device does natively ──────────────────────────────────────────────────────────────────────────


def _cuda(traits: Traits) -> tuple[str, str]:
    assert traits.capability is not None
    at = f"compute capability {traits.capability[0]}.{traits.capability[1]}"
    if traits.capability >= (8, 0):
        return "bf16-mixed", f"{at} (8.0 or newer) multiplies bf16 natively, and bf16 needs no loss scale"
    if traits.capability >= (7, 0):
        return "fp16-mixed", f"{at} multiplies fp16 natively and only emulates bf16, whatever is_bf16_supported() says"
    return "fp32", f"{at} (older than 7.0) has no fast 16-bit matrix product"


_ROCM_BF16 = ("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


def _rocm(traits: Traits) -> tuple[str, str]:
    if traits.architecture.startswith(_ROCM_BF16):
        return "bf16-mixed", f"{traits.architecture} multiplies bf16 natively, and bf16 needs no loss scale"
    return "fp16-mixed", f"{traits.architecture or 'this architecture'} is not known to multiply bf16 at full rate"


def _cpu(traits: Traits) -> tuple[str, str]:
    found = sorted(traits.features & _CPU_BF16)
    if found:
        return "bf16-mixed", f"it has {', '.join(found)}, and bf16 needs no loss scale"
    return "fp32", "it has no 16-bit matrix instructions (AVX512_BF16, AMX_BF16 or Arm BF16), so 16-bit would be slower"


def _mps(traits: Traits) -> tuple[str, str]:
    return "fp16-mixed", "every Apple GPU computes fp16 natively; the first two generations emulate bf16"


def _xpu(traits: Traits) -> tuple[str, str]:
    return "bf16-mixed", "XMX units multiply bf16 natively, and bf16 needs no loss scale"


def _unknown(traits: Traits) -> tuple[str, str]:
    return "fp32", "nothing is known about its 16-bit units; name a mode to use them"


_RULES = {"cuda": _cuda, "rocm": _rocm, "cpu": _cpu, "mps": _mps, "xpu": _xpu}

_CPU_BF16 = frozenset({"AVX512_BF16", "AMX_BF16", "ARM_BF16"})


# ── looking at the device ───────────────────────────────────────────────────────────────────────────────────────────


def _probe_cuda(device: torch.device) -> Traits:
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        architecture = str(getattr(properties, "gcnArchName", "")).split(":")[0]
        return Traits("rocm", properties.name, architecture=architecture)
    return Traits("cuda", properties.name, capability=(properties.major, properties.minor))


def _cpu_name() -> str:
    return str(_cpu_capabilities().get("cpu_name") or platform.processor() or "cpu")


def _cpu_capabilities() -> Mapping[str, object]:
    """What torch detects; empty before torch had the function, which came after 2.6."""
    detect: Callable[[], Mapping[str, object]] = getattr(torch.cpu, "get_capabilities", dict)
    return detect()


def _cpu_features() -> frozenset[str]:
    """The bf16 instruction sets of this CPU, from torch's own detection; the private probes serve torch before 2.12."""
    seen = _cpu_capabilities()
    if seen:
        keys = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX_BF16", "bf16": "ARM_BF16", "sve_bf16": "ARM_BF16"}
        return frozenset(name for key, name in keys.items() if seen.get(key))
    probes = {"_is_avx512_bf16_supported": "AVX512_BF16", "_is_amx_tile_supported": "AMX_BF16"}
    return frozenset(name for probe, name in probes.items() if getattr(torch.cpu, probe, bool)())
