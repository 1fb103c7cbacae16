"""Lightning's plugins keep their ways; what Lightning refuses or gets wrong works."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("lightning", reason="extra: lightning")

from lightning.fabric import Fabric
from lightning.fabric.plugins.precision import FSDPPrecision
from lightning.pytorch.plugins.precision import FSDPPrecision as TrainerFSDP

from mixprec import GradScaler
from mixprec.errors import InvalidValueError, UnknownNameError
from mixprec.integrations.lightning import MixprecFabricPrecision, MixprecFSDPPrecision, MixprecPrecision

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("plugin", [MixprecPrecision, MixprecFabricPrecision, MixprecFSDPPrecision])
def test_the_policy_and_the_dtype_reach_forward(plugin):
    """The plugin's forward context is a region of the mode's dtype under the policy, on the device it was given."""
    made = plugin("bf16-mixed", "cpu", policy="uniform")
    with made.forward_context():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        assert product.dtype is torch.bfloat16
        assert torch.softmax(product, -1).dtype is torch.float32
    assert made.scaler is None


def test_fsdp_takes_a_scaler_which_lightning_does_not():
    """Lightning's own class raises for any scaler; this one keeps it, and makes one whose ranks agree by default."""
    own = GradScaler("cpu")
    with pytest.raises(ValueError, match="does not use a scaler"):
        TrainerFSDP("16-mixed", scaler=own)
    plugin = MixprecFSDPPrecision("fp16-mixed", "cpu", scaler=own)
    assert isinstance(plugin, TrainerFSDP)
    assert isinstance(plugin, FSDPPrecision) or not issubclass(TrainerFSDP, FSDPPrecision)
    assert plugin.scaler is own
    assert plugin.mixed_precision_config.param_dtype is torch.float16
    assert MixprecFSDPPrecision("fp16-mixed", "cpu").scaler._process_group == "world"


def test_fabric_inputs_keep_their_values():
    """A target of 1e5 stays 1e5: Fabric's own plugin casts inputs to float16 at the door, where it is infinite."""
    fabric = Fabric(accelerator="cpu", devices=1, plugins=[MixprecFabricPrecision("fp16-mixed", "cpu")])
    seen = []

    class Net(nn.Linear):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            seen.append((target, x.dtype))
            return super().forward(x)

    model = Net(2, 1)
    wrapped, _ = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
    wrapped(torch.ones(1, 2), torch.tensor([1e5]))
    assert seen[0][0].item() == 1e5


REFUSED = {
    "mode": (lambda p: p("16-mixed", "cpu"), UnknownNameError, "did you mean 'fp16-mixed'"),
    "another scaler": (
        lambda p: p("fp16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu")),
        InvalidValueError,
        "accepted is a mixprec.GradScaler",
    ),
    "a scaler for bf16": (
        lambda p: p("bf16-mixed", "cpu", scaler=GradScaler("cpu")),
        InvalidValueError,
        "fp16 alone needs a loss scale",
    ),
    "policy": (lambda p: p("bf16-mixed", "cpu", policy="leen"), UnknownNameError, "did you mean 'lean'"),
}


@pytest.mark.parametrize("plugin", [MixprecPrecision, MixprecFabricPrecision, MixprecFSDPPrecision])
@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_is_refused(plugin, name):
    """With the value, what is accepted and the way out; the accepted neighbour is made."""
    act, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        act(plugin)
    assert plugin("fp16-mixed", "cpu", scaler=GradScaler("cpu"), policy="lean").scaler is not None


def test_clipping_that_nobody_would_do_is_refused():
    """bf16 has no scaler that could clip: Fabric's own call does it, and the error says so."""
    with pytest.raises(InvalidValueError, match=r"call fabric\.clip_gradients"):
        MixprecFabricPrecision("bf16-mixed", "cpu", max_norm=1.0)
    with pytest.raises(InvalidValueError, match="configure_gradient_clipping"):
        MixprecFSDPPrecision("bf16-mixed", "cpu").clip_grad_by_norm(None, 1.0)
    assert MixprecFabricPrecision("fp16-mixed", "cpu", max_norm=1.0).max_norm == 1.0
