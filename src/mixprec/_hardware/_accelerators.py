"""Peak rates are rows with a source each; a row whose numbers we could not check against one says so."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._hardware._choice import Traits
from mixprec.errors import UnknownNameError

__all__ = ["ACCELERATORS", "Accelerator", "accelerator_named", "accelerator_of"]


@dataclass(frozen=True)
class Accelerator:
    """One device. Rates are dense (no sparsity) with float32 accumulation, in TFLOPS; `bandwidth` is in TB/s.

    None: the device has no unit for that dtype, and PyTorch emulates it or runs it on the float32 units. `parts` are
    pieces of the name that the driver reports, `traits` what decides the recommended mode. `note` says what to know.
    """

    name: str
    maker: str
    fp16: float | None
    bf16: float | None
    tf32: float | None
    fp32: float
    bandwidth: float
    traits: Traits
    source: str
    verified: bool
    parts: tuple[str, ...]
    note: str = ""

    def rate(self, dtype: str) -> float:
        """FLOPs per second for products in `dtype`; float32 units where there is no unit for it."""
        rates = {"float16": self.fp16, "bfloat16": self.bf16, "tf32": self.tf32}
        return (rates.get(dtype) or self.fp32) * 1e12

    def native(self, dtype: str) -> bool:
        """Whether there is a unit for `dtype`."""
        return {"float16": self.fp16, "bfloat16": self.bf16}.get(dtype, self.fp32) is not None


def accelerator_named(name: str) -> Accelerator:
    """The row called `name`, in any case. Raises: UnknownNameError."""
    for row in ACCELERATORS:
        if row.name.lower() == name.strip().lower():
            return row
    raise UnknownNameError("accelerator", name, [row.name for row in ACCELERATORS], "`mixprec device` lists them.")


def accelerator_of(traits: Traits) -> Accelerator | None:
    """The row for the device that `traits` describe, by the name that its driver reports; None where none fits."""
    name = traits.name.lower()
    rows = (row for row in ACCELERATORS if row.traits.kind == traits.kind)
    fitting = [row for row in rows if any(part.lower() in name for part in row.parts)]
    return max(fitting, key=lambda row: max(len(p) for p in row.parts if p.lower() in name), default=None)


def _cuda(major: int, minor: int) -> Traits:
    return Traits("cuda", capability=(major, minor))


def _rocm(architecture: str) -> Traits:
    return Traits("rocm", architecture=architecture)


_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_HALF_RATE = "with float16 accumulation float16 is twice as fast; PyTorch accumulates in float32"
_EMULATED = "emulates bfloat16 through float32, although torch.cuda.is_bf16_supported() says True"

ACCELERATORS: tuple[Accelerator, ...] = (
    Accelerator(
        "V100", "NVIDIA", 125, None, None, 15.7, 0.9, _cuda(7, 0), f"{_NVIDIA}/v100/", False, ("V100",), _EMULATED
    ),
    Accelerator(
        "T4", "NVIDIA", 65, None, None, 8.1, 0.32, _cuda(7, 5), f"{_NVIDIA}/tesla-t4/", False, ("T4",), _EMULATED
    ),
    Accelerator(
        "RTX 2080 Ti",
        "NVIDIA",
        53.8,
        None,
        None,
        13.4,
        0.616,
        _cuda(7, 5),
        "https://images.nvidia.com/aem-dam/en-zz/Solutions/design-visualization/technologies/turing-architecture/"
        "NVIDIA-Turing-Architecture-Whitepaper.pdf",
        False,
        ("2080 Ti",),
        _EMULATED,
    ),
    Accelerator("A100", "NVIDIA", 312, 312, 156, 19.5, 2.0, _cuda(8, 0), f"{_NVIDIA}/a100/", True, ("A100", "A800")),
    Accelerator(
        "A10", "NVIDIA", 125, 125, 62.5, 31.2, 0.6, _cuda(8, 6), f"{_NVIDIA}/products/a10-gpu/", False, ("A10G", "A10")
    ),
    Accelerator("RTX 3090", "NVIDIA", 71, 71, 35.6, 35.6, 0.936, _cuda(8, 6), _GA102, False, ("RTX 3090",), _HALF_RATE),
    Accelerator("RTX 3090 Ti", "NVIDIA", 80, 80, 40, 40, 1.0, _cuda(8, 6), _GA102, True, ("RTX 3090 Ti",), _HALF_RATE),
    Accelerator("RTX 4090", "NVIDIA", 165, 165, 82.6, 82.6, 1.0, _cuda(8, 9), _ADA, True, ("RTX 4090",), _HALF_RATE),
    Accelerator("L4", "NVIDIA", 121, 121, 60, 30.3, 0.3, _cuda(8, 9), f"{_NVIDIA}/l4/", False, ("L4",)),
    Accelerator("L40S", "NVIDIA", 362, 362, 183, 91.6, 0.864, _cuda(8, 9), f"{_NVIDIA}/l40s/", False, ("L40S",)),
    Accelerator("H100", "NVIDIA", 989, 989, 494.5, 67, 3.35, _cuda(9, 0), f"{_NVIDIA}/h100/", True, ("H100", "H800")),
    Accelerator("H200", "NVIDIA", 989, 989, 494.5, 67, 4.8, _cuda(9, 0), f"{_NVIDIA}/h200/", True, ("H200",)),
    Accelerator("B200", "NVIDIA", 2250, 2250, 1125, 75, 8.0, _cuda(10, 0), f"{_NVIDIA}/dgx-b200/", True, ("B200",)),
    Accelerator(
        "MI100",
        "AMD",
        184.6,
        92.3,
        None,
        46.1,
        1.23,
        _rocm("gfx908"),
        "https://www.amd.com/en/products/accelerators/instinct/mi100.html",
        False,
        ("MI100",),
        "bfloat16 at half the float16 rate",
    ),
    Accelerator(
        "MI250X",
        "AMD",
        383,
        383,
        None,
        47.9,
        3.2,
        _rocm("gfx90a"),
        "https://www.amd.com/en/products/accelerators/instinct/mi200/mi250x.html",
        True,
        ("MI250X", "MI250"),
        "its matrix units flush subnormal 16-bit values to zero, so scale the loss high; bandwidth not verified",
    ),
    Accelerator(
        "MI300X",
        "AMD",
        1307,
        1307,
        653.7,
        163.4,
        5.3,
        _rocm("gfx942"),
        "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
        True,
        ("MI300X",),
    ),
    Accelerator(
        "Max 1550",
        "Intel",
        839,
        839,
        419,
        52.4,
        3.2,
        Traits("xpu"),
        "https://www.intel.com/content/www/us/en/products/sku/232873/intel-data-center-gpu-max-1550/specifications.html",
        False,
        ("Max 1550",),
    ),
    Accelerator(
        "Gaudi 2",
        "Intel",
        432,
        432,
        216,
        11,
        2.45,
        Traits("hpu"),
        "https://docs.habana.ai/en/latest/Gaudi_Overview/Gaudi_Architecture.html",
        False,
        ("Gaudi2", "Gaudi 2"),
        "use Intel's own autocast lists; mixprec knows none for it",
    ),
    Accelerator(
        "M1 / M2",
        "Apple",
        None,
        None,
        None,
        2.6,
        0.068,
        Traits("mps"),
        "https://github.com/pytorch/pytorch/issues/119641",
        False,
        ("M1", "M2"),
        "float16 saves memory and bandwidth and multiplies no faster; bfloat16 is emulated; needs macOS 14",
    ),
    Accelerator(
        "Ascend 910A",
        "Huawei",
        256,
        None,
        None,
        16,
        1.2,
        Traits("npu"),
        "https://github.com/vllm-project/vllm-ascend/issues/9294",
        False,
        ("910A",),
        "float16 only; a plain 'Ascend910B' without a digit is this hardware",
    ),
    Accelerator(
        "Ascend 910B",
        "Huawei",
        313,
        313,
        None,
        75,
        1.6,
        Traits("npu"),
        "https://github.com/deepseek-ai/DeepSeek-V3/pull/903",
        False,
        ("910B1", "910B2", "910B3", "910B4"),
        "bfloat16 and float16, no FP8",
    ),
)
"""From the makers' data sheets. Where `verified` is False the rates were not checked against two places."""
