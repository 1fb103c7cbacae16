"""Kernels beside PyTorch's are used where they were asked for by name, and refused where they cannot work."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

from mixprec import GradScaler, Precision
from mixprec._kernels import Kernels, chosen, means_of
from mixprec.errors import InvalidValueError, MissingExtraError, UnknownNameError


def test_the_default_is_pytorch_s():
    """Nobody gets a kernel that they did not ask for."""
    weight = nn.Parameter(torch.ones(2))

    assert GradScaler("cpu")._kernels is Kernels.FOREACH
    assert Precision("fp32", torch.optim.AdamW([weight])).kernels is Kernels.FOREACH


def test_triton_is_loaded_only_for_who_asks():
    """Using a scaler and masters with PyTorch's kernels imports no file that needs Triton."""
    script = (
        "import sys, mixprec, mixprec._kernels; mixprec.GradScaler('cpu'); mixprec.Precision;"
        "print([name for name in sys.modules if name.startswith('mixprec._kernels._triton')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout.strip() == "[]"


def test_a_missing_triton_is_one_error_that_names_the_extra(monkeypatch):
    """MissingExtraError says what to install; PyTorch's kernels go on working."""
    monkeypatch.setitem(sys.modules, "triton", None)
    for name in [name for name in sys.modules if name.startswith("mixprec._kernels._triton")]:
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(MissingExtraError, match=r"Kernels\.TRITON needs .*pip install 'mixprec\[kernels\]'") as caught:
        means_of(Kernels.TRITON, "cuda")

    assert (caught.value.package, caught.value.extra) == ("triton", "kernels")
    assert means_of(Kernels.FOREACH, "cuda") is not None


def test_triton_is_refused_on_cpu():
    """Outside its interpreter it has nothing to offer there; a disabled scaler reads nothing and takes it."""
    pytest.importorskip("triton", reason="Triton is published for Linux only")

    with pytest.raises(InvalidValueError, match="'foreach' on the device 'cpu'"):
        GradScaler("cpu", kernels=Kernels.TRITON)
    assert not GradScaler("cpu", enabled=False, kernels=Kernels.TRITON).is_enabled()
    assert GradScaler("cpu", kernels=Kernels.FOREACH).is_enabled()


def test_triton_is_accepted_for_cuda():
    """The nearest accepted device."""
    pytest.importorskip("triton", reason="Triton is published for Linux only")

    assert type(means_of(Kernels.TRITON, "cuda")).__name__ == "TritonMeans"


@pytest.mark.parametrize("name", ["foreach", Kernels.FOREACH])
def test_names_and_members_are_accepted(name):
    """A configuration file has text."""
    assert chosen(name) is Kernels.FOREACH


def test_an_unknown_name_is_answered_with_the_nearest():
    """UnknownNameError suggests."""
    with pytest.raises(UnknownNameError, match="did you mean 'triton'"):
        GradScaler("cpu", kernels="tritn")


def test_a_scaler_does_not_take_pieces():
    """Pieces are of masters, and a scaler has none; the error says where they belong."""
    with pytest.raises(InvalidValueError, match=r"It steps masters: Precision\("):
        GradScaler("cpu", kernels=Kernels.PIECES)


def test_a_scaler_with_kernels_is_copied_and_pickled():
    """The choice is part of it."""
    scaler = GradScaler("cpu", kernels="foreach")

    for other in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
        assert other._kernels is Kernels.FOREACH
        other.scale(torch.ones(()))


def adamw(**changed):
    return torch.optim.AdamW([nn.Parameter(torch.ones(3, dtype=torch.bfloat16))], **{"fused": True, **changed})


REFUSED = {
    "another optimizer": lambda: torch.optim.SGD([nn.Parameter(torch.ones(3).bfloat16())], lr=1e-3),
    "Adam": lambda: torch.optim.Adam([nn.Parameter(torch.ones(3).bfloat16())], fused=True),
    "not fused": lambda: adamw(fused=None),
    "amsgrad": lambda: adamw(amsgrad=True),
    "maximize": lambda: adamw(maximize=True),
    "capturable": lambda: adamw(capturable=True),
    "a tensor for lr": lambda: adamw(lr=torch.tensor(1e-3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_optimizer_that_no_kernel_steps_is_refused_with_a_way_out(name):
    """InvalidValueError says which AdamW is accepted, and that the others work with PyTorch's kernels."""
    with pytest.raises(InvalidValueError, match=r"accepted is torch\.optim\.AdamW\(fused=True\) .*kernels='foreach'"):
        Precision("bf16-master", REFUSED[name](), kernels=Kernels.PIECES)
    assert Precision("bf16-master", REFUSED[name](), kernels=Kernels.FOREACH).mode == "bf16-master"


def test_the_accepted_optimizer_is_accepted():
    """The nearest acceptance of what is refused above."""
    assert Precision("bf16-master", adamw(), kernels=Kernels.PIECES).kernels is Kernels.PIECES


@pytest.mark.parametrize("mode", ["fp32", "fp16-mixed", "bf16-mixed"])
def test_pieces_are_refused_without_masters(mode):
    """Where weights are float32 there is nothing to cut."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(3))], fused=True)

    with pytest.raises(InvalidValueError, match=f"'pieces' on CPU in the modes .* This is '{mode}' on 'cpu'"):
        Precision(mode, optimizer, kernels="pieces")


def test_a_configuration_names_kernels():
    """From the key `kernels`, as text; what is no text is refused."""
    precision = Precision.from_config({"mode": "bf16-master", "kernels": "pieces"}, adamw())

    assert precision.kernels is Kernels.PIECES
    with pytest.raises(InvalidValueError, match="kernels is 3"):
        Precision.from_config({"mode": "bf16-master", "kernels": 3}, adamw())
