"""Every spelling of PyTorch's mixed-precision names: which device it is for, and what its arguments were."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODULES", "SPELLINGS", "Spelling", "target_of"]


@dataclass(frozen=True)
class Spelling:
    """One way to say `kind`. `device` is None where the call names it itself, as current PyTorch has it."""

    kind: str
    device: str | None

    @property
    def deprecated(self) -> bool:
        """Whether PyTorch warns of it since 2.4."""
        return self.device is not None


AUTOCAST_ORDER = ("enabled", "dtype", "cache_enabled")
"""The order of the deprecated regions' arguments; the current one has the device and the dtype first.

Source: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/cuda/amp/autocast_mode.py
"""

_HOMES = {
    "autocast": ("", "autocast_mode."),
    "GradScaler": ("", "grad_scaler."),
    "custom_fwd": ("", "autocast_mode."),
    "custom_bwd": ("", "autocast_mode."),
}

SPELLINGS: dict[str, Spelling] = {
    f"torch.{prefix}amp.{home}{kind}": Spelling(kind, device)
    for prefix, device in (("cuda.", "cuda"), ("cpu.", "cpu"), ("", None))
    for kind, homes in _HOMES.items()
    for home in homes
    if (device, kind) not in {("cpu", "custom_fwd"), ("cpu", "custom_bwd")}
} | {"torch.autocast": Spelling("autocast", None), "torch.GradScaler": Spelling("GradScaler", None)}

MODULES = frozenset(name.rpartition(".")[0] for name in SPELLINGS) - {"torch"}
"""The modules that they are imported from; `torch` itself is imported for much else."""

OURS = frozenset({"GradScaler", "autocast"})


def target_of(kind: str, to: str) -> str:
    """The module that hands out `kind` after a migration to `"torch"` or `"mixprec"`."""
    return "mixprec" if to == "mixprec" and kind in OURS else "torch.amp"
