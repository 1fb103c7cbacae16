"""Module rules hold inside the modules that they name, and only there."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from mixprec import Policy, autocast, errors

X = torch.linspace(-1, 1, 12).view(3, 4)


class Probe(nn.Module):
    """A linear layer and an exponential; `seen` holds (input, product, exponential, autocast enabled)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen: list[tuple[Any, ...]] = []

    def forward(self, x: torch.Tensor, *, extra: torch.Tensor | None = None) -> torch.Tensor:
        y = self.linear(x)
        e = y.exp()
        self.seen.append((x.dtype, y.dtype, e.dtype, torch.is_autocast_enabled("cpu")))
        if extra is not None:
            self.seen.append((extra.dtype,))
        return e


class Special(Probe):
    pass


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Probe()
        self.mlp = Special()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.attention(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.head = Probe()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def probes(self) -> dict[str, Probe]:
        return {name: m for name, m in self.named_modules() if isinstance(m, Probe)}


low, f32 = torch.bfloat16, torch.float32
NATIVE = (low, low, True)
QUIET = (f32, f32, False)


def _seen(model: Model, policy: Policy, **kwargs: Any) -> dict[str, tuple[Any, ...]]:
    for probe in model.probes().values():
        probe.seen.clear()
    with autocast("cpu", policy=policy, **kwargs):
        model(X)
    return {name: probe.seen[0][1:] for name, probe in model.probes().items()}


ALL = sorted(Model().probes())


@pytest.mark.parametrize(
    ("module", "inside"),
    [
        ("layers.1", {"layers.1.attention", "layers.1.mlp"}),
        ("layers.*.mlp", {"layers.0.mlp", "layers.1.mlp", "layers.2.mlp"}),
        ("layers.[02]", {"layers.0.attention", "layers.0.mlp", "layers.2.attention", "layers.2.mlp"}),
        ("head", {"head"}),
        ("**", set(ALL)),
        (Special, {"layers.0.mlp", "layers.1.mlp", "layers.2.mlp"}),
        ("Special", {"layers.0.mlp", "layers.1.mlp", "layers.2.mlp"}),
        (Layer, {n for n in ALL if n != "head"}),
        (Probe, set(ALL)),
        (nn.Linear, set()),
    ],
)
def test_an_fp32_module_computes_in_float32_with_autocast_off(module: Any, inside: set[str]) -> None:
    """Selected by glob, class or class name, all inside runs in float32; everything else as it would."""
    seen = _seen(Model(), Policy.torch("cpu").with_module(module, "fp32"))
    assert {name for name, dtypes in seen.items() if dtypes == QUIET} == inside
    outside = {dtypes for name, dtypes in seen.items() if name not in inside}
    if module is not nn.Linear:  # there only the product is inside
        assert outside <= {NATIVE}
    else:
        assert outside == {(f32, f32, True)}


def test_a_module_may_be_given_as_an_instance() -> None:
    """`with_module(model.head, ..., within=model)` is the rule for its path."""
    model = Model()
    seen = _seen(model, Policy.torch("cpu").with_module(model.layers[2].mlp, "fp32", within=model))
    assert [name for name, dtypes in seen.items() if dtypes == QUIET] == ["layers.2.mlp"]


def test_inputs_of_an_fp32_module_are_cast_up_and_results_are_float32() -> None:
    """Positional and keyword tensors, also in containers, arrive in float32; gradients flow through the casts."""
    model = Model()
    for probe in model.probes().values():
        probe.seen.clear()

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Probe()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, extra=x)

    root = Root()
    x = X.bfloat16().requires_grad_()
    with autocast("cpu", policy=Policy.torch("cpu").with_module("inner", "fp32")):
        y = root(x)
    assert root.inner.seen == [(f32, f32, f32, False), (f32,)]
    assert y.dtype is f32
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is low


def test_a_low_module_casts_the_inputs_of_every_op() -> None:
    """`LOW` lowers what no list lowers: additions, exponentials, softmax."""

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            one = torch.ones(4)
            return x, one + one, one.exp(), one.softmax(-1), one.sum(), one.clone()

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sums = Sums()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.sums(x)

    with autocast("cpu", policy=Policy.uniform().with_module("sums", "low")):
        results = Root()(X)
    assert [r.dtype for r in results] == [low, low, low, low, low, f32]


def test_a_keep_module_runs_on_what_it_is_given() -> None:
    """`KEEP` is `torch.autocast(enabled=False)`: no cast at all, so mixed inputs are the module's own business."""
    model = Model()
    seen = _seen(model, Policy.torch("cpu").with_module("layers.0.attention", "keep"))
    assert seen["layers.0.attention"] == QUIET
    with (
        pytest.raises(RuntimeError, match="dtype"),
        autocast("cpu", policy=Policy.torch("cpu").with_module("layers.1.attention", "keep")),
    ):
        model(X)


def test_an_op_in_a_module_comes_before_the_module_and_the_list() -> None:
    """The closest rule wins: op in module, module, op, base."""
    policy = (
        Policy.torch("cpu")
        .with_op("exp", "fp32")
        .with_op("exp", "keep", module="layers.0.mlp")
        .with_module("layers.1", "fp32")
        .with_op("linear", "low", module="layers.1.mlp")
    )
    seen = _seen(Model(), policy)
    assert seen["layers.0.attention"] == (low, f32, True)
    assert seen["layers.0.mlp"] == (low, low, True)
    assert seen["layers.1.attention"] == QUIET
    assert seen["layers.1.mlp"][:2] == (low, f32)
    assert seen["layers.2.mlp"] == (low, f32, True)


def test_the_innermost_module_wins() -> None:
    """A rule for an inner module holds inside it against the rule of an outer one, and ends with it."""
    policy = Policy.torch("cpu").with_module("layers.1", "fp32").with_module("layers.1.attention", "low")
    seen = _seen(Model(), policy)
    assert seen["layers.1.attention"] == (low, low, True)
    assert seen["layers.1.mlp"] == QUIET


def test_after_an_error_inside_a_module_the_region_goes_on_as_before() -> None:
    """A module that raises leaves its rule behind, inside the same region."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = nn.Linear(5, 5), Probe()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with pytest.raises(RuntimeError, match="shape"):
                self.bad(x)
            return self.good(x)

    root = Root()
    with autocast("cpu", policy=Policy.torch("cpu").with_module("bad", "fp32")):
        root(X)
    assert root.good.seen[0][1:] == NATIVE


def test_nothing_is_left_on_the_model_after_a_region() -> None:
    """Hooks are there only inside; the model can be copied and pickled afterwards, and a second region works."""
    model = Model()
    policy = Policy.torch("cpu").with_module("head", "fp32")
    for _ in range(2):
        assert _seen(model, policy)["head"] == QUIET
        assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
        assert not any(m._forward_pre_hooks_with_kwargs or m._forward_hooks_always_called for m in model.modules())
    pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(2, 2))))
    assert _seen(copy.deepcopy(model), policy)["head"] == QUIET
    with torch.autocast("cpu"):
        model.head.seen.clear()
        model(X)
    assert model.head.seen[0][1:] == NATIVE


def test_a_disabled_region_inside_switches_module_rules_off() -> None:
    """No cast on the way into a module, and no cast inside, where the program switched autocast off."""
    model = Model()
    with (
        autocast("cpu", policy=Policy.torch("cpu").with_module("head", "low")),
        torch.autocast("cpu", enabled=False),
    ):
        model(X)
    assert model.head.seen == [(f32, f32, f32, False)]


def test_the_root_is_the_first_module_called() -> None:
    """Paths start at the outermost module; a loss module called afterwards is a root of its own."""
    model, loss = Model(), nn.Sequential(Probe())
    policy = Policy.torch("cpu").with_module("head", "fp32").with_module("0", "fp32")
    with autocast("cpu", policy=policy):
        loss(model(X))
    assert model.head.seen[0][1:] == QUIET
    assert loss[0].seen[0][1:] == QUIET  # type: ignore[union-attr, index]  # a Probe


def test_the_root_can_be_named() -> None:
    """`rooted(model)`: a program that calls the parts of a model by itself gets the paths of the whole."""
    model = Model()
    policy = Policy.torch("cpu").with_module("layers.1", "fp32")
    with autocast("cpu", policy=policy).rooted(model):
        model.head(model.layers[1](X))
    assert model.layers[1].mlp.seen[0][1:] == QUIET
    assert model.head.seen[0][1:] == NATIVE


def test_a_root_that_a_rule_names_is_cast_in_too() -> None:
    """The outermost module itself may be the one with the rule; its inputs are cast though its hook comes late."""
    probe = Probe()
    for _ in range(2):
        probe.seen.clear()
        with autocast("cpu", policy=Policy.torch("cpu").with_module(Probe, "fp32")):
            probe(X.bfloat16())
            probe(X.bfloat16())
        assert probe.seen == [(f32, f32, f32, False)] * 2


def test_a_path_that_no_module_has_is_refused_where_the_root_is_named() -> None:
    """Names are checked, with suggestions; a glob may match nothing, and the right name is accepted."""
    model = Model()
    with pytest.raises(errors.UnknownNameError, match="did you mean 'head'"):
        autocast("cpu", policy=Policy.torch("cpu").with_module("haed", "fp32")).rooted(model)
    autocast("cpu", policy=Policy.torch("cpu").with_module("head", "fp32")).rooted(model)
    autocast("cpu", policy=Policy.torch("cpu").with_module("decoder.*", "fp32")).rooted(model)
    autocast("cpu").rooted(model)


def test_wrappers_add_no_segment_to_a_path() -> None:
    """A model in `DataParallel` or `torch.compile` has the paths that it has alone."""
    policy = Policy.torch("cpu").with_module("head", "fp32")
    for wrap in (nn.DataParallel, lambda m: torch.compile(m, backend="eager")):
        model = Model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped = wrap(model)
            with autocast("cpu", policy=policy).rooted(wrapped):
                out = wrapped(X)
        assert out.dtype is f32


def test_a_model_that_changes_between_regions_is_walked_again() -> None:
    """A module added after the first region is found by its path in the next."""
    model = Model()
    policy = Policy.torch("cpu").with_module("layers.3", "fp32")
    _seen(model, policy)
    model.layers.append(Layer())
    assert _seen(model, policy)["layers.3.mlp"] == QUIET


def test_another_thread_without_a_region_is_not_touched_by_the_hooks() -> None:
    """A model called in a plain thread while a region with module rules is open elsewhere computes in float32."""
    import threading

    model = Model()
    with autocast("cpu", policy=Policy.torch("cpu").with_module("head", "low")).rooted(model):
        thread = threading.Thread(target=model, args=(X,))
        thread.start()
        thread.join()
        model(X)
    assert model.head.seen == [(f32, f32, f32, False), (low, low, low, True)]


@pytest.mark.parametrize("inner", [None, "uniform", Policy.torch("cpu").with_module("nothing", "fp32")], ids=str)
def test_a_region_of_another_policy_inside_knows_nothing_of_the_outer_rules(inner: Any) -> None:
    """Hooks of the outer policy's modules are silent while a region with its own policy is the innermost."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.probe = Probe()

        def forward(self, x: torch.Tensor) -> None:
            with autocast("cpu", policy=inner):
                self.probe(x)
            self.probe(x)

    root = Root()
    with autocast("cpu", policy=Policy.torch("cpu").with_module("probe", "fp32")):
        root(X)
    exponential = f32 if inner == "uniform" else low
    assert [seen[1:] for seen in root.probe.seen] == [(low, exponential, True), QUIET]
