"""Under a patch PyTorch's names make ours, in every module; after it nothing of ours is left in them."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types

import pytest
import torch
from torch import nn

import mixprec
from mixprec._patch import Patch, patch
from mixprec._patch._stand_ins import PLACES
from mixprec.errors import InvalidValueError, UnknownNameError


def held() -> dict[str, object]:
    """What PyTorch's names hold now."""
    found = {}
    for place in PLACES:
        module, _, name = place.rpartition(".")
        found[place] = getattr(sys.modules[module], name)
    return found


@pytest.fixture
def script(monkeypatch):
    """A module that has imported PyTorch's classes by name, as scripts do."""
    module = types.ModuleType("a_users_script")
    exec("from torch.amp import GradScaler as Scaler, autocast\nfrom torch.cuda import amp", module.__dict__)
    monkeypatch.setitem(sys.modules, "a_users_script", module)
    return module


def train(seed: int = 0) -> list[torch.Tensor]:
    """Four steps of torch.amp code as it is written everywhere, the third of which overflows; its parameters."""
    torch.manual_seed(seed)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(16, 8)).square().mean()
        scaler.scale(loss * float("inf") if step == 2 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_code_written_for_torch_trains_the_same_under_the_patch():
    """The parameters after steps and a skip are bit-identical to those without the patch."""
    expected = train()
    with patch():
        actual = train()
    assert all(map(torch.equal, actual, expected))


def test_every_place_holds_ours_and_gets_its_own_back():
    """All names that PyTorch hands out are exchanged and, after undo, are the very objects that they were."""
    before = held()
    with patch() as made:
        assert held() == PLACES
        assert set(PLACES) <= set(made.places)
    assert held() == before


def test_names_imported_before_and_during_the_patch_are_exchanged_and_given_back(script):
    """`from torch.amp import …` binds a name early; it is found, and one bound meanwhile is found by undo."""
    originals = (script.Scaler, script.autocast)
    made = patch()
    assert isinstance(script.Scaler("cpu"), mixprec.GradScaler)
    script.late = torch.amp.GradScaler
    made.undo()
    assert (script.Scaler, script.autocast) == originals
    assert script.late is originals[0]


def test_ours_is_not_taken_for_a_stand_in(script):
    """A module that imported mixprec's own classes keeps them through patch and undo."""
    script.own = mixprec.GradScaler
    with patch():
        assert script.own is mixprec.GradScaler
    assert script.own is mixprec.GradScaler


def test_isinstance_counts_as_before():
    """Scalers and regions of PyTorch, of ours and of the patch are all instances of what stands in the name."""
    old_scaler, old_region = torch.amp.GradScaler("cpu"), torch.autocast("cpu")
    with patch(policy="uniform"):
        for scaler in (old_scaler, mixprec.GradScaler("cpu"), torch.amp.GradScaler("cpu")):
            assert isinstance(scaler, torch.amp.GradScaler)
        for region in (old_region, mixprec.autocast("cpu"), torch.autocast("cpu")):
            assert isinstance(region, torch.autocast)
        assert not isinstance(old_region, torch.amp.GradScaler)


def test_the_deprecated_names_keep_the_order_of_their_arguments():
    """torch.cuda.amp.autocast takes `enabled` first and torch.cpu.amp.GradScaler takes `init_scale` first."""
    with patch():
        region = torch.cpu.amp.autocast(True, torch.bfloat16, False)
        assert (region.device, region.fast_dtype, region._cache_enabled) == ("cpu", torch.bfloat16, False)
        assert torch.cpu.amp.GradScaler(8.0).get_scale() == 8.0
        assert torch.cuda.amp.autocast(False).device == "cuda"


def test_the_policy_reaches_regions_that_say_nothing():
    """softmax stays in 16 bits on PyTorch's CPU list and is float32 under `uniform`; undo ends it."""
    x = torch.randn(4, 4)

    def dtype_of_softmax() -> torch.dtype:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.softmax(x @ x, -1).dtype

    assert dtype_of_softmax() is torch.bfloat16
    with patch(policy="uniform"):
        assert dtype_of_softmax() is torch.float32
        with patch(policy="torch"):
            assert dtype_of_softmax() is torch.bfloat16
        assert dtype_of_softmax() is torch.float32
    assert dtype_of_softmax() is torch.bfloat16


def test_a_region_inside_another_keeps_its_policy():
    """What PyTorch's own checkpointing opens inside a region with a policy does not replace that policy."""
    x = torch.randn(4, 4)
    with patch(policy="lean"), mixprec.autocast("cpu", torch.bfloat16, policy="uniform"):
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.softmax(x @ x, -1).dtype is torch.float32
        decorated = torch.autocast("cpu", torch.bfloat16)(lambda: torch.softmax(x @ x, -1))
        assert decorated().dtype is torch.float32


def test_a_compiled_function_keeps_one_graph_and_the_policy():
    """torch.compile(fullgraph=True) traces torch.autocast under the patch, to the dtype that eager gives."""

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.softmax(x @ x, -1)

    x = torch.randn(4, 4)
    torch._dynamo.reset()
    with patch(policy="uniform"):
        compiled = torch.compile(function, fullgraph=True, backend="eager")(x)
        assert compiled.dtype is torch.float32
        assert torch.equal(compiled, function(x))
    torch._dynamo.reset()
    assert torch.compile(function, fullgraph=True, backend="eager")(x).dtype is torch.bfloat16


def test_a_subclass_of_a_patched_name_is_ours():
    """A script that derives from torch.amp.GradScaler under the patch derives from ours, and pickles."""
    with patch():

        class Mine(torch.amp.GradScaler):
            pass

        assert isinstance(Mine("cpu"), mixprec.GradScaler)
        saved = pickle.dumps(torch.amp.GradScaler("cpu", init_scale=4.0))
    assert pickle.loads(saved).get_scale() == 4.0


def test_undo_twice_and_out_of_order():
    """Undoing again does nothing, and the names are ours until the last patch is undone."""
    before = held()
    first, second = patch(), patch()
    first.undo()
    first.undo()
    assert held() == PLACES
    second.undo()
    assert held() == before


@pytest.mark.parametrize(
    ("policy", "error"), [("unifrom", UnknownNameError), (3, InvalidValueError)], ids=["misspelt", "a number"]
)
def test_a_policy_that_does_not_exist_changes_nothing(policy, error):
    """The error comes from `patch` and not from the first region, and no name was exchanged."""
    before = held()
    with pytest.raises(error):
        patch(policy=policy)
    assert held() == before
    with patch(policy="uniform") as accepted:
        assert isinstance(accepted, Patch)


def test_the_public_name_is_the_function_however_it_is_reached():
    """`mixprec.patch()` works in a fresh process, also after the submodules were imported."""
    code = "import mixprec, mixprec._patch; mixprec.patch(); import torch; print(torch.autocast.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "mixprec._patch._stand_ins", done.stderr
