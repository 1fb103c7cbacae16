"""The choice follows what the hardware does natively, not what it can be made to do."""

from __future__ import annotations

import pytest
import torch

from mixprec import Precision
from mixprec._hardware import Traits, probe, recommend


@pytest.mark.parametrize(
    ("traits", "mode", "reason"),
    [
        (Traits("cuda", "NVIDIA H200", (9, 0)), "bf16-mixed", "compute capability 9.0 (8.0 or newer)"),
        (Traits("cuda", "NVIDIA A100", (8, 0)), "bf16-mixed", "bf16 needs no loss scale"),
        (Traits("cuda", "Tesla T4", (7, 5)), "fp16-mixed", "only emulates bf16, whatever is_bf16_supported() says"),
        (Traits("cuda", "Tesla V100", (7, 0)), "fp16-mixed", "compute capability 7.0"),
        (Traits("cuda", "GTX 1080", (6, 1)), "fp32", "no fast 16-bit matrix product"),
        (Traits("rocm", "MI250X", architecture="gfx90a"), "bf16-mixed", "gfx90a multiplies bf16 natively"),
        (Traits("rocm", "MI300X", architecture="gfx942"), "bf16-mixed", "gfx942"),
        (Traits("rocm", "MI50", architecture="gfx906"), "fp16-mixed", "gfx906 is not known"),
        (Traits("cpu", "Zen 4", features=frozenset({"AVX512_BF16"})), "bf16-mixed", "it has AVX512_BF16"),
        (Traits("cpu", "Xeon", features=frozenset({"AMX_BF16", "AVX512_BF16"})), "bf16-mixed", "AMX_BF16, AVX512"),
        (Traits("cpu", "Zen 3"), "fp32", "so 16-bit would be slower"),
        (Traits("cpu", "odd", features=frozenset({"AVX512_FP16"})), "fp32", "no 16-bit matrix instructions"),
        (Traits("mps"), "fp16-mixed", "every Apple GPU computes fp16 natively"),
        (Traits("xpu", "Arc"), "bf16-mixed", "XMX"),
        (Traits("privateuseone"), "fp32", "nothing is known about its 16-bit units"),
    ],
)
def test_the_choice_and_its_reason(traits, mode, reason):
    """One row per kind of hardware; the reason names the device and what decided."""
    found = recommend(traits)
    assert found.mode == mode
    assert reason in found.reason
    assert (traits.name or traits.kind) in found.reason


def test_this_cpu_is_seen_as_torch_sees_it():
    """The probe reports AVX512_BF16 exactly where torch detects it, by the newer interface as by the older."""
    features = probe(torch.device("cpu")).features
    assert ("AVX512_BF16" in features) == torch.cpu._is_avx512_bf16_supported()


def test_a_torch_without_capabilities_is_asked_the_old_way(monkeypatch):
    """Before torch had get_capabilities, its private probes answer."""
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    assert probe(torch.device("cpu")).features == {"AMX_BF16"}


def test_auto_takes_the_recommendation_and_gives_its_reason():
    """A named mode is kept, and its reason still says what auto would take."""
    native = recommend(probe(torch.device("cpu")))
    auto = Precision("auto", device="cpu")
    assert (auto.mode, auto.reason) == (native.mode, native.reason)
    named = Precision("fp32", device="cpu")
    assert named.mode == "fp32"
    assert named.reason == f"fp32 was asked for; auto would take {native.reason}"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_this_gpu_gets_what_it_does_natively():
    """On a GPU the choice agrees with torch's own answer once emulation is left out."""
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    assert (Precision("auto", device="cuda").mode == "bf16-mixed") == native
