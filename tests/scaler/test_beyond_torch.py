"""Where torch's scaler is silent or wrong, ours is not; each rejection stands beside the nearest acceptance."""

from __future__ import annotations

import collections
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

from mixprec import GradScaler, presets
from mixprec._loss_scale import Rules, State, advance, initial, on_device
from mixprec._scale_tensors import ScaleTensors, advance_
from mixprec._scaler import ShardedGradScaler
from mixprec._scaler._floor import FloorLook
from mixprec.errors import CheckpointError, HalfGradientsError, InvalidValueError, LossScaleFloorError, MixprecError

INF = float("inf")


def weight_and(optimizer: Any, *args: Any, **options: Any) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    weight = nn.Parameter(torch.ones(4))
    return weight, optimizer([weight], *args, **options)


def started(**arguments: Any) -> GradScaler:
    scaler = GradScaler("cpu", **arguments)
    scaler.scale(torch.zeros(()))
    return scaler


def overflow(scaler: GradScaler, found: bool, weight: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    scaler.scale(weight.sum() * (INF if found else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()


# Bounds --------------------------------------------------------------------------------------------------------------


def test_the_scale_stays_within_its_bounds() -> None:
    """It neither falls below `min_scale` nor grows beyond `max_scale`."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.0)
    scaler = GradScaler("cpu", init_scale=8.0, min_scale=2.0, max_scale=12.0, growth_interval=1)
    seen = []
    for found in (True, True, True, False, False, False, False):
        overflow(scaler, found, weight, optimizer)
        seen.append(scaler.get_scale())
    assert seen == [4.0, 2.0, 2.0, 4.0, 8.0, 12.0, 12.0]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("patience", [1, 3, 10])
def test_a_scale_that_sits_at_its_floor_is_an_error(patience: int, fused: bool) -> None:
    """After exactly `floor_patience` consecutive overflows at the floor; a clean step in between starts over."""
    weight, optimizer = weight_and(torch.optim.Adam, lr=0.0, fused=fused)
    scaler = GradScaler("cpu", init_scale=2.0, floor_patience=patience)
    overflow(scaler, True, weight, optimizer)
    for _ in range(patience - 1):
        overflow(scaler, True, weight, optimizer)
    overflow(scaler, False, weight, optimizer)
    for _ in range(patience - 1):
        overflow(scaler, True, weight, optimizer)
    with pytest.raises(LossScaleFloorError, match="floor of 1") as caught:
        overflow(scaler, True, weight, optimizer)
    assert (caught.value.scale, caught.value.overflows) == (1.0, patience)


def test_after_the_floor_s_error_the_scaler_can_go_on() -> None:
    """Whoever catches the error may step again: a clean step is applied and starts the count over."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.1)
    scaler = GradScaler("cpu", init_scale=1.0, floor_patience=2)
    overflow(scaler, True, weight, optimizer)
    with pytest.raises(LossScaleFloorError):
        overflow(scaler, True, weight, optimizer)
    overflow(scaler, False, weight, optimizer)
    assert scaler.report(optimizer).applied
    overflow(scaler, True, weight, optimizer)


class Elsewhere:
    """CPU tensors that say they are on CUDA, for the path that copies while the device goes on."""

    is_cuda = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = tree_map(lambda x: x.tensor if isinstance(x, cls) else x, args)
        return func(*plain, **(kwargs or {}))


class Event:
    recorded = synchronized = 0

    def record(self) -> None:
        Event.recorded += 1

    def synchronize(self) -> None:
        Event.synchronized += 1


@pytest.mark.parametrize(("device", "late"), [("other", 0), ("cuda", 1)])
def test_an_accelerator_is_looked_at_as_rarely_as_the_patience_allows(
    device: str, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per patience in a healthy run; the error comes at the update when it is due, on CUDA one later."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    rules, looks = Rules(floor_patience=10, init_scale=1.0), 0
    tensors = ScaleTensors.start(rules, "cpu")
    look = FloorLook(rules, 0)
    seen = replace(tensors, scale=Elsewhere(tensors.scale)) if device == "cuda" else tensors
    judge = FloorLook._judge

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += 1
        return judge(*args, **kwargs)

    monkeypatch.setattr(FloorLook, "_judge", counted)
    for _ in range(100):
        advance_(rules, tensors, torch.zeros(()))
        assert look.updated(rules, seen) is None
    assert looks <= 10
    overflows = 0
    error = None
    while error is None:
        advance_(rules, tensors, torch.ones(()))
        overflows += 1
        error = look.updated(rules, seen)
    assert 10 <= overflows <= 10 + late
    assert error.overflows == 10


def test_without_patience_the_floor_holds_for_ever() -> None:
    """`floor_patience=None` skips and skips, as Megatron does."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.0)
    scaler = GradScaler("cpu", init_scale=2.0, floor_patience=None)
    for _ in range(300):
        overflow(scaler, True, weight, optimizer)
    assert scaler.get_scale() == 1.0


def test_torch_s_scale_reaches_zero_and_ours_never_does() -> None:
    """166 consecutive overflows take torch's scale from 2**16 to 0, and then a clean gradient makes NaN parameters."""

    def train(scaler: Any) -> tuple[float, bool]:
        weight, optimizer = weight_and(torch.optim.SGD, lr=0.1)
        for step in range(168):
            optimizer.zero_grad()
            scaler.scale(weight.sum() * (INF if step < 166 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        return scaler.get_scale(), bool(weight.isfinite().all())

    assert train(torch.amp.GradScaler("cpu")) == (0.0, False)
    assert train(GradScaler("cpu", floor_patience=None)) == (1.0, True)
    scale, finite = train(GradScaler("cpu", rules=presets.TORCH.rules))
    assert (scale, finite) == (0.0, True)  # torch's own rules, but a division by 0 is an overflow


def test_a_default_bound_gives_way_to_init_scale_and_a_given_one_does_not() -> None:
    """Code written for torch may start anywhere; a bound that is set excludes what it excludes."""
    assert started(init_scale=2.0**32).get_scale() == 2.0**32
    assert started(init_scale=0.25).get_scale() == 0.25
    with pytest.raises(InvalidValueError, match=r"init_scale is 200\.0; accepted is .*max_scale=100\.0"):
        GradScaler("cpu", init_scale=200.0, max_scale=100.0)
    assert started(init_scale=100.0, max_scale=100.0).get_scale() == 100.0


# Infinities ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("fused", [False, True])
def test_the_unscaled_gradients_are_what_must_be_finite(fused: bool, max_norm: float | None) -> None:
    """At a scale of 2**-10 a gradient of 1e38 is finite, and infinite once unscaled; torch takes that step."""

    def train(scaler: Any, **clip: Any) -> torch.Tensor:
        weight, optimizer = weight_and(torch.optim.SGD, lr=1e-3, fused=fused)
        scaler.scale(torch.zeros(()))
        weight.grad = torch.tensor([1e38, 1.0, 1.0, 1.0])
        scaler.step(optimizer, **clip)
        scaler.update()
        return weight.detach()

    if max_norm is None:
        assert not train(torch.amp.GradScaler("cpu", init_scale=2.0**-10)).isfinite().all()
    ours = GradScaler("cpu", init_scale=2.0**-10, min_scale=2.0**-20)
    assert train(ours, max_norm=max_norm).tolist() == [1.0] * 4
    assert ours.get_scale() == 2.0**-11


@pytest.mark.parametrize("max_norm", [None, 1.0, math.inf])
@pytest.mark.parametrize("fused", [False, True])
def test_finite_gradients_whose_norm_overflows_are_not_skipped(fused: bool, max_norm: float | None) -> None:
    """3e19 squared is infinite in float32; the step is applied all the same, and clipped right."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=1.0, fused=fused)
    scaler = started(init_scale=1.0)
    weight.grad = torch.tensor([3e19, 4e19, 0.0, 0.0])
    scaler.step(optimizer, max_norm=max_norm)
    assert scaler.report(optimizer).applied
    if max_norm == 1.0:
        torch.testing.assert_close(weight.detach(), torch.tensor([0.4, 0.2, 1.0, 1.0]))
    if max_norm is not None:
        assert scaler.report(optimizer).grad_norm == pytest.approx(5e19)


@pytest.mark.parametrize("fused", [False, True])
def test_whoever_writes_to_a_verdict_changes_that_step_only(fused: bool) -> None:
    """Code written for torch writes to `found_inf_per_device` between step and update, such as an all-reduce."""
    weight, optimizer = weight_and(torch.optim.AdamW, lr=0.1, fused=fused)
    scaler, seen = GradScaler("cpu"), []
    for written in (None, 1.0, None, None, 1.0):
        optimizer.zero_grad()
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        (flag,) = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        assert flag.item() == 0.0
        if written is not None:
            flag.fill_(written)
        scaler.update()
        assert scaler.report(optimizer).applied
        seen.append(scaler.get_scale())
    assert seen == [2.0**16, 2.0**15, 2.0**15, 2.0**15, 2.0**14]


# Fused optimizers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_a_skipped_step_leaves_no_uninitialised_momentum(momentum: float, first: bool) -> None:
    """Fused SGD after a skipped step has exactly the parameters of SGD without a scaler; so has a late parameter."""
    results = []
    for scaled in (True, False):
        torch.manual_seed(0)
        early, late = nn.Parameter(torch.randn(64)), nn.Parameter(torch.randn(64))
        groups = [{"params": [early]}, {"params": [late]}]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=momentum, fused=scaled)
        scaler = GradScaler("cpu", enabled=scaled, init_scale=8.0)
        for step in range(5):
            optimizer.zero_grad()
            params = [early] if step < 2 else [early, late]
            skip = step == (0 if first else 2)
            loss = sum((p * p).sum() for p in params) * (INF if skip and scaled else 1.0)
            scaler.scale(loss).backward()
            if scaled or not skip:
                scaler.step(optimizer)
            scaler.update()
        results.append((early.detach(), late.detach()))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("reload", [False, True])
def test_an_unknown_fused_optimizer_is_not_told_to_skip_before_it_has_state(reload: bool) -> None:
    """Whatever it allocates, it allocates in a step that is applied; also after its state was loaded anew."""

    class Careless(torch.optim.SGD):
        _step_supports_amp_scaling = True
        skipped_without_state = False

        def step(self, closure: Any = None) -> None:  # type: ignore[override] # the contract's own
            (param,) = self.param_groups[0]["params"]
            fresh = "buffer" not in self.state[param]
            if fresh:
                self.state[param]["buffer"] = torch.full_like(param, float("nan"))
            if self.found_inf.item():
                Careless.skipped_without_state |= fresh
                return
            self.state[param]["buffer"].copy_(param.grad / self.grad_scale)
            param.data.sub_(self.state[param]["buffer"], alpha=self.param_groups[0]["lr"])

    weight, optimizer = weight_and(Careless, lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0)
    for step, found in enumerate((True, False, True, True, False)):
        if reload and step == 2:
            optimizer.load_state_dict({"state": {}, "param_groups": optimizer.state_dict()["param_groups"]})
        overflow(scaler, found, weight, optimizer)
    assert not Careless.skipped_without_state
    assert weight.isfinite().all()


def test_a_step_that_raises_leaves_the_contract_s_attributes_behind_nowhere() -> None:
    """`grad_scale` and `found_inf` are gone, and the scaler can go on."""

    class Fails(torch.optim.AdamW):
        fail = True

        def step(self, closure: Any = None) -> Any:
            if self.fail:
                raise ArithmeticError("planted")
            return super().step(closure)

    weight, optimizer = weight_and(Fails, lr=0.1, fused=True)
    scaler = GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ArithmeticError, match="planted"):
        scaler.step(optimizer)
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")
    Fails.fail = False
    scaler.step(optimizer)
    scaler.update()
    assert (weight < 1.0).all()


@pytest.mark.parametrize("max_norm", [None, 0.5])
def test_a_plain_step_that_raises_is_not_unscaled_twice(max_norm: float | None) -> None:
    """The gradients were unscaled already; a second try takes them as they are."""

    class Fails(torch.optim.SGD):
        fail = True

        def step(self, closure: Any = None) -> Any:
            if self.fail:
                raise ArithmeticError("planted")
            return super().step(closure)

    weight, optimizer = weight_and(Fails, lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(weight.sum() / 8).backward()
    with pytest.raises(ArithmeticError, match="planted"):
        scaler.step(optimizer, max_norm=max_norm)
    Fails.fail = False
    scaler.step(optimizer, max_norm=max_norm)
    torch.testing.assert_close(weight.detach(), torch.full((4,), 1.0 - 0.1 / 8))


# Refusals ------------------------------------------------------------------------------------------------------------


def test_a_closure_is_refused_in_either_place_and_none_is_accepted() -> None:
    """By position or by name it would optimise the scaled loss; `step(optimizer, None)` is what wrappers pass."""
    weight, optimizer = weight_and(torch.optim.LBFGS)
    scaler = GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    text = re.escape("Closure use is not currently supported if GradScaler is enabled.")
    for args, kwargs in (((lambda: weight.sum(),), {}), ((), {"closure": lambda: weight.sum()})):
        with pytest.raises(RuntimeError, match=text):
            scaler.step(optimizer, *args, **kwargs)
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.1)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer, None)
    assert scaler.report(optimizer).applied


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("nan"), "1", True])
def test_a_max_norm_that_is_none_is_refused(max_norm: Any) -> None:
    """The error says what is accepted; any positive number and infinity are."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.1)
    scaler = GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(
        InvalidValueError, match=r"max_norm is .*accepted is a number above 0, infinity to measure only"
    ):
        scaler.step(optimizer, max_norm=max_norm)
    scaler.step(optimizer, max_norm=1)


@pytest.mark.parametrize(
    ("setter", "bad", "good"),
    [
        ("set_growth_factor", 1.0, 1.5),
        ("set_growth_factor", float("nan"), 1.001),
        ("set_backoff_factor", 0.0, 0.01),
        ("set_backoff_factor", 1.0, 0.99),
        ("set_backoff_factor", -0.5, 0.5),
        ("set_growth_interval", 0, 1),
        ("set_growth_interval", 2.5, 2),
    ],
)
def test_setters_say_what_they_accept(setter: str, bad: Any, good: Any) -> None:
    """The error has the name, the value and the range; nothing changes by a refused call."""
    scaler = GradScaler("cpu")
    before = scaler.state_dict()
    name = setter.removeprefix("set_")
    with pytest.raises(InvalidValueError, match=re.escape(f"{name} is {bad!r}; accepted is")):
        getattr(scaler, setter)(bad)
    assert scaler.state_dict() == before
    getattr(scaler, setter)(good)
    assert getattr(scaler, "get_" + name)() == good


@pytest.mark.parametrize(
    ("argument", "bad"),
    [
        ("init_scale", 0.0),
        ("init_scale", -1.0),
        ("init_scale", INF),
        ("init_scale", float("nan")),
        ("growth_factor", float("nan")),
        ("backoff_factor", -0.5),
        ("growth_interval", 0),
        ("min_scale", -1.0),
        ("max_scale", 0.5),
        ("floor_patience", 0),
    ],
)
def test_the_constructor_says_what_it_accepts(argument: str, bad: Any) -> None:
    """Values that torch takes in silence and is broken by are refused by name, value and range."""
    with pytest.raises(InvalidValueError, match=re.escape(f"{argument} is {bad!r}; accepted is")):
        GradScaler("cpu", **{argument: bad})


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("scale", float("nan")),
        ("scale", 0.0),
        ("scale", "65536"),
        ("growth_factor", -1.0),
        ("backoff_factor", 2.0),
        ("growth_interval", -3),
        ("_growth_tracker", -1),
        ("_growth_tracker", 1.5),
    ],
)
@pytest.mark.parametrize("live", [False, True], ids=["before the first scale", "after it"])
def test_a_broken_state_dict_is_refused_as_a_whole(key: str, bad: Any, live: bool) -> None:
    """Nothing of it is loaded; the same dict with a sound value is."""
    scaler = started() if live else GradScaler("cpu")
    before = scaler.state_dict()
    sound = {"scale": 8.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 5, "_growth_tracker": 2}
    with pytest.raises(InvalidValueError, match=re.escape(f"{key} is {bad!r}; accepted is")):
        scaler.load_state_dict({**sound, key: bad})
    assert scaler.state_dict() == before
    scaler.load_state_dict(sound)
    assert scaler.state_dict() == sound


def test_a_scale_outside_the_bounds_is_loaded_within_them() -> None:
    """torch's scaler may have grown beyond 2**24 or fallen below 1; ours goes on from its bound."""
    saved = torch.amp.GradScaler("cpu", init_scale=2.0**30).state_dict()
    scaler = GradScaler("cpu")
    scaler.load_state_dict(saved)
    assert scaler.get_scale() == 2.0**24
    scaler.load_state_dict({**saved, "scale": 2.0**-3})
    assert scaler.get_scale() == 1.0


def test_the_state_beyond_torch_s_is_saved_where_there_is_some() -> None:
    """Tolerated overflows and overflows at the floor survive a save, and torch's scaler can load it."""
    weight, optimizer = weight_and(torch.optim.SGD, lr=0.1)
    scaler = GradScaler("cpu", rules=presets.MEGATRON.rules)
    overflow(scaler, True, weight, optimizer)
    saved = scaler.state_dict()
    assert saved["mixprec"]["allowance"] == 0
    other = GradScaler("cpu", rules=presets.MEGATRON.rules)
    other.load_state_dict(saved)
    for one in (scaler, other):
        overflow(one, True, weight, optimizer)
        assert one.get_scale() == 2.0**31
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(saved)
    assert theirs.get_scale() == 2.0**32


@pytest.mark.parametrize("bad", [0.0, float("nan"), INF, -2.0, 2.0**30, True, "8"])
def test_update_accepts_a_number_within_the_bounds(bad: Any) -> None:
    """An int is a number; what would break every later step is refused."""
    scaler = started()
    with pytest.raises(InvalidValueError, match="new_scale is"):
        scaler.update(bad)
    assert scaler.get_scale() == 2.0**16
    scaler.update(1024)
    assert scaler.get_scale() == 1024.0


@pytest.mark.parametrize(("given", "held"), [(512.0, 512.0), (0.0, 1.0), (INF, 2.0**24), (float("nan"), 1.0)])
def test_update_brings_a_tensor_within_the_bounds(given: float, held: float) -> None:
    """A tensor is not looked at, which would be a sync, but no later step is broken by it."""
    scaler = started()
    scaler.update(torch.tensor([given]))
    assert scaler.get_scale() == held


def test_an_interval_lowered_below_the_tracker_still_grows() -> None:
    """torch compares for equality and never grows again; ours grows after the next clean step."""
    for kind, expected in ((torch.amp.GradScaler, 8.0), (GradScaler, 16.0)):
        weight, optimizer = weight_and(torch.optim.SGD, lr=0.0)
        scaler = kind("cpu", init_scale=8.0, growth_interval=100)
        for step in range(9):
            overflow(scaler, False, weight, optimizer)
            if step == 5:
                scaler.set_growth_interval(3)
        assert scaler.get_scale() == expected


# Outputs -------------------------------------------------------------------------------------------------------------


def test_a_float16_loss_of_any_shape_is_scaled_without_overflow() -> None:
    """torch multiplies a 1-dim float16 loss in float16, where 65536 is infinite."""
    loss = torch.ones(2, dtype=torch.float16)
    assert torch.amp.GradScaler("cpu").scale(loss).tolist() == [INF, INF]
    assert GradScaler("cpu").scale(loss).tolist() == [65536.0, 65536.0]


def test_outputs_keep_their_shape() -> None:
    """Named tuples and mappings are scaled inside; torch breaks on the first and scales the keys of the second."""
    Output = collections.namedtuple("Output", ["loss", "more"])
    scaler, one = GradScaler("cpu", init_scale=4.0), torch.ones(())
    scaled = scaler.scale(Output(one, [one * 2]))
    assert isinstance(scaled, Output)
    assert (scaled.loss.item(), scaled.more[0].item()) == (4.0, 8.0)
    assert {k: v.item() for k, v in scaler.scale({"a": one, "b": one * 3}).items()} == {"a": 4.0, "b": 12.0}
    ordered = scaler.scale(collections.OrderedDict(a=one))
    assert isinstance(ordered, collections.OrderedDict)
    assert [t.item() for t in scaler.scale(t for t in (one, one * 2))] == [4.0, 8.0]
    for nonsense in (3.0, None, "loss", [one, 2]):
        with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
            scaler.scale(nonsense)  # type: ignore[arg-type] # refused


# Float16 parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_float16_parameters_are_named_with_the_two_ways_out(max_norm: float | None) -> None:
    """The error starts with torch's text; fused optimizers, which divide in float32, are accepted as by torch."""
    model = nn.Linear(2, 2).half()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=4.0)
    scaler.scale(model(torch.ones(1, 2, dtype=torch.float16)).float().sum()).backward()
    with pytest.raises(ValueError, match=r"^Attempting to unscale FP16 gradients\.") as caught:
        scaler.step(optimizer, max_norm=max_norm)
    assert isinstance(caught.value, HalfGradientsError)
    assert caught.value.parameters == ("weight (2, 2)", "bias (2,)")
    for part in ("weight (2, 2)", "model.float()", "fp16-master"):
        assert part in str(caught.value)
    fused = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler.step(fused, max_norm=max_norm)
    assert scaler.report(fused).applied


def test_sharded_scaler_unscales_float16_in_float16() -> None:
    """As torch's ShardedGradScaler does, for FSDP's mixed precision; positions are torch's too."""
    weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = ShardedGradScaler("cpu", 8.0, 0.25, 3.0, 7)
    assert (scaler.get_backoff_factor(), scaler.get_growth_factor(), scaler.get_growth_interval()) == (0.25, 3.0, 7)
    scaler.scale(weight.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5] * 4


def test_multiplying_float16_gradients_does_not_round_the_factor_to_zero() -> None:
    """2**-30 is 0 in float16; the multiplication is done in float32."""
    weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = ShardedGradScaler("cpu", 2.0**30, max_scale=2.0**30)
    scaler.scale(torch.zeros(()))
    weight.grad = torch.full_like(weight, 32768.0)
    scaler.step(optimizer, max_norm=math.inf)
    assert weight.grad.tolist() == [32768.0 * 2.0**-30] * 4 != [0.0] * 4


# Rules ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", presets.all_presets(), ids=lambda preset: preset.name)
@pytest.mark.parametrize("fused", [False, True])
def test_every_preset_moves_a_real_scaler_as_its_specification_says(preset: Any, fused: bool) -> None:
    """Random overflow streams through scale, backward, step and update; state and events are the specification's."""
    rules = preset.rules
    rules = on_device(rules.__class__(**{**vars(rules), "growth_interval": 4, "floor_patience": None}))
    generator = torch.Generator().manual_seed(3)
    weight, optimizer = weight_and(torch.optim.AdamW, lr=0.0, fused=fused)
    scaler = GradScaler("cpu", rules=rules)
    state: State = initial(rules)
    for overflowed in (torch.rand(150, generator=generator) < 0.25).tolist():
        overflow(scaler, overflowed, weight, optimizer)
        before, (state, _) = state.scale, advance(rules, state, overflowed)
        report = scaler.report(optimizer)
        assert scaler._state() == state
        assert (report.scale_before, report.scale_after, report.applied) == (before, state.scale, not overflowed)


def test_rules_stand_alone() -> None:
    """Rules and torch's arguments would contradict each other; the error shows how to say both."""
    with pytest.raises(InvalidValueError, match=r"dataclasses.replace\(rules, init_scale=8.0\)"):
        GradScaler("cpu", init_scale=8.0, rules=presets.APEX.rules)
    assert started(rules=Rules(init_scale=8.0)).get_scale() == 8.0


def test_all_errors_are_mixprec_s_and_of_the_type_that_callers_catch() -> None:
    """InvalidValueError is a ValueError, the floor's a RuntimeError, and all are MixprecError."""
    for kind, builtin in (
        (HalfGradientsError, ValueError),
        (LossScaleFloorError, RuntimeError),
        (CheckpointError, RuntimeError),
    ):
        assert issubclass(kind, builtin)
        assert issubclass(kind, MixprecError)
