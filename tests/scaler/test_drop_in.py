"""Differential: the same calls, in any order, valid or not, on torch's scaler and on ours, and nothing differs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec import GradScaler

FLOAT32_MAX = torch.finfo(torch.float32).max
KINDS = ("sgd", "momentum", "adamw", "fused_adamw", "fused_sgd", "adagrad_fused")

Call = tuple[Any, ...]


class World:
    """A scaler, two optimizers over a small model, and what happens to them."""

    def __init__(self, make_scaler: Any, kinds: tuple[str, str]) -> None:
        generator = torch.Generator().manual_seed(7)
        shapes = [(3, 2), (4,), (5,), (2, 2)]
        self.params = [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]
        self.owned = (self.params[:2], self.params[2:])
        self.optimizers = [optimizer(kind, owned) for kind, owned in zip(kinds, self.owned, strict=True)]
        self.scaler = make_scaler()

    def do(self, call: Call) -> Any:
        """The result of `call`, or the type and text of what it raised."""
        name, *args = call
        try:
            return getattr(self, name)(*args)
        except Exception as error:
            builtin = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
            return builtin, str(error)

    def backward(self, which: int, factor: float) -> Any:
        terms = [(p * p * (0.5 + i)).sum() for i, p in enumerate(self.owned[which])]
        loss = torch.stack(terms).sum() * factor
        scaled = self.scaler.scale(loss)
        scaled.backward()
        return scaled.detach()

    def unscale(self, which: int) -> Any:
        return self.scaler.unscale_(self.optimizers[which])

    def clip(self, which: int) -> Any:
        grads = [p for p in self.owned[which] if p.grad is not None]
        return torch.nn.utils.clip_grad_norm_(grads, 0.5) if grads else None

    def step(self, which: int) -> Any:
        return self.scaler.step(self.optimizers[which])

    def closure(self, which: int) -> Any:
        return self.scaler.step(self.optimizers[which], closure=None)

    def update(self) -> Any:
        return self.scaler.update()

    def set_scale(self, value: float) -> Any:
        return self.scaler.update(value)

    def set_scale_tensor(self, value: float) -> Any:
        return self.scaler.update(torch.full((), value))

    def refused_scale_tensor(self, kind: str) -> Any:
        bad = {"grad": torch.ones((), requires_grad=True), "two": torch.ones(2), "meta": torch.ones((), device="meta")}
        return self.scaler.update(bad[kind])

    def zero_grad(self, which: int, set_to_none: bool) -> Any:
        return self.optimizers[which].zero_grad(set_to_none=set_to_none)

    def factors(self) -> Any:
        self.scaler.set_growth_factor(self.scaler.get_growth_factor() * 1.5)
        self.scaler.set_backoff_factor(self.scaler.get_backoff_factor() * 0.75)
        self.scaler.set_growth_interval(self.scaler.get_growth_interval() + 1)
        return (self.scaler.get_growth_factor(), self.scaler.get_backoff_factor(), self.scaler.get_growth_interval())

    def save(self) -> Any:
        return self.scaler.state_dict()

    def reload(self) -> Any:
        return self.scaler.load_state_dict(self.scaler.state_dict())

    def load_empty(self) -> Any:
        return self.scaler.load_state_dict({})

    def load_part(self, key: str) -> Any:
        state = self.scaler.state_dict()
        del state[key]
        return self.scaler.load_state_dict(state)

    def repickle(self) -> Any:
        self.scaler = pickle.loads(pickle.dumps(self.scaler))

    def recopy(self) -> Any:
        self.scaler = copy.deepcopy(self.scaler)

    def scale_nest(self) -> Any:
        ones = torch.ones(2)
        nest = self.scaler.scale([ones, (ones * 2, [ones * 3])])
        return nest[0], nest[1][0], nest[1][1][0]

    def scale_nonsense(self) -> Any:
        return self.scaler.scale(3.0)

    def seen(self) -> list[Any]:
        """Everything that may differ."""
        grads = [p.grad for p in self.params]
        state = [v for o in self.optimizers for s in o.state.values() for v in s.values()]
        stages = [s["stage"] for s in self.scaler._per_optimizer_states.values()]
        return [self.params, grads, state, stages, self.scaler.get_scale(), self.scaler._get_growth_tracker()]


def optimizer(kind: str, params: list[Any]) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(params, lr=0.1)
    if kind == "momentum":
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)
    if kind == "adamw":
        return torch.optim.AdamW(params, lr=0.1)
    if kind == "fused_adamw":
        return torch.optim.AdamW(params, lr=0.1, fused=True)
    if kind == "adagrad_fused":
        return torch.optim.Adagrad(params, lr=0.1, fused=True)
    return torch.optim.SGD(params, lr=0.1, fused=True)


def same(left: Any, right: Any) -> bool:
    """Equality bit for bit, through nests."""
    if isinstance(left, torch.Tensor):
        if not isinstance(right, torch.Tensor) or left.dtype != right.dtype or left.shape != right.shape:
            return False
        return bool(((left == right) | (left.isnan() & right.isnan())).all())
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right) or (left != left and right != right)


WHICH = st.integers(0, 1)
CALLS = st.one_of(
    st.tuples(st.just("backward"), WHICH, st.sampled_from([1.0, 1.0, 3.0, float("inf"), float("nan"), 0.0])),
    st.tuples(st.sampled_from(["unscale", "clip", "step", "step", "closure"]), WHICH),
    st.tuples(st.just("zero_grad"), WHICH, st.booleans()),
    st.tuples(st.sampled_from(["set_scale", "set_scale_tensor"]), st.sampled_from([2.0, 1024.0])),
    st.tuples(st.just("refused_scale_tensor"), st.sampled_from(["grad", "two", "meta"])),
    st.tuples(st.just("load_part"), st.sampled_from(["scale", "growth_factor", "growth_interval", "_growth_tracker"])),
    st.tuples(st.sampled_from(["factors", "save", "reload", "load_empty", "repickle", "recopy"])),
    st.tuples(st.sampled_from(["scale_nest", "scale_nonsense", "update", "update"])),
)
ROUND = st.sampled_from(
    [
        [("backward", 0, 1.0), ("step", 0), ("update",)],
        [("backward", 0, 1.0), ("unscale", 0), ("clip", 0), ("step", 0), ("update",)],
        [("backward", 0, float("inf")), ("backward", 1, 1.0), ("step", 0), ("step", 1), ("update",)],
        [("zero_grad", 0, True), ("zero_grad", 1, False)],
    ]
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    rounds=st.lists(st.one_of(ROUND, st.lists(CALLS, min_size=1, max_size=4)), min_size=1, max_size=8),
    interval=st.integers(1, 4),
    device=st.sampled_from(["cpu", "cpu", "xyz"]),
)
def test_any_sequence_of_calls_gives_what_torch_gives(
    kinds: tuple[str, str], rounds: list[list[Call]], interval: int, device: str
) -> None:
    """Results, errors with their texts, parameters, gradients, optimizer state, scale are torch's, bit for bit."""

    def theirs() -> Any:
        return torch.amp.GradScaler(device, init_scale=4.0, growth_interval=interval)

    def ours() -> Any:
        return GradScaler(
            device,
            init_scale=4.0,
            growth_interval=interval,
            min_scale=0.0,
            max_scale=FLOAT32_MAX,
            floor_patience=None,
            guards=frozenset(),
        )

    left, right = World(theirs, kinds), World(ours, kinds)
    for call in (call for calls in rounds for call in calls):
        results = left.do(call), right.do(call)
        assert same(*results), (call, *results)
        assert same(left.seen(), right.seen()), call


@pytest.mark.parametrize("kinds", [("sgd", "fused_adamw"), ("adamw", "momentum")])
def test_a_disabled_scaler_gives_what_torch_s_gives(kinds: tuple[str, str]) -> None:
    """Every method of a disabled scaler returns or raises what torch's does."""
    left = World(lambda: torch.amp.GradScaler("cpu", enabled=False), kinds)
    right = World(lambda: GradScaler("cpu", enabled=False), kinds)
    calls: list[Call] = [("backward", 0, 1.0), ("unscale", 0), ("clip", 0), ("step", 0), ("update",), ("save",)]
    calls += [("load_empty",), ("repickle",), ("recopy",), ("factors",), ("scale_nonsense",), ("set_scale", 3.0)]
    for call in calls:
        results = left.do(call), right.do(call)
        assert same(*results), (call, *results)
        assert same([left.params, left.scaler.get_scale()], [right.params, right.scaler.get_scale()]), call
    assert left.scaler.is_enabled() is right.scaler.is_enabled() is False


def test_without_cuda_the_default_device_warns_and_disables_as_torch_does() -> None:
    """The warning's text and the disabled state are torch's, and the warning points at the caller."""
    if torch.cuda.is_available():
        pytest.skip("the warning is for machines without CUDA")
    with pytest.warns(UserWarning, match="CUDA is not available.  Disabling.") as caught:
        scaler = GradScaler()
    assert not scaler.is_enabled()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("arguments", [{"growth_factor": 1.0}, {"backoff_factor": 1.0}])
def test_the_constructor_asserts_what_torch_asserts(arguments: dict[str, float]) -> None:
    """The two checks of torch's constructor keep their type and text."""
    with pytest.raises(AssertionError) as theirs:
        torch.amp.GradScaler("cpu", **arguments)
    with pytest.raises(AssertionError) as ours:
        GradScaler("cpu", **arguments)
    assert str(ours.value) == str(theirs.value)


def test_state_dicts_are_interchangeable() -> None:
    """What either scaler saves, the other loads and saves again unchanged."""
    theirs = torch.amp.GradScaler("cpu", init_scale=512.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    theirs.scale(torch.ones(()))
    theirs._growth_tracker.fill_(5)
    ours = GradScaler("cpu")
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict() == theirs.state_dict()
    back = torch.amp.GradScaler("cpu")
    back.load_state_dict(ours.state_dict())
    assert back.state_dict() == theirs.state_dict()
    ours.scale(torch.ones(()))
    assert (ours.get_scale(), ours._get_growth_tracker()) == (512.0, 5)


def test_isinstance_holds_and_the_signature_starts_with_torch_s() -> None:
    """Code that asks for torch's scaler, or passes its arguments by position, is served."""
    scaler = GradScaler("cpu", 8.0, 3.0, 0.25, 5, True)
    assert isinstance(scaler, torch.amp.GradScaler)
    assert scaler.state_dict() == torch.amp.GradScaler("cpu", 8.0, 3.0, 0.25, 5, True).state_dict()
