"""A converted model is close to its original, says how close, and keeps in float32 what has to stay there."""

from __future__ import annotations

import copy

import numpy
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import mixprec
from mixprec import Policy
from mixprec._convert import Converted
from mixprec.errors import CheckpointError, InvalidValueError, UnknownNameError


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.gain * self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class Language(nn.Module):
    """A transformer with what is awkward: tied weights, a buffer, parameters outside units, attention."""

    def __init__(self, width: int = 16, words: int = 30) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.randn(12, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def vision() -> nn.Sequential:
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    return nn.Sequential(*layers).eval()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


TOKENS = torch.arange(24).reshape(2, 12) % 30
MODELS = {
    "language": (Language, TOKENS),
    "vision": (vision, torch.linspace(-1, 1, 384).reshape(2, 3, 8, 8)),
    "recurrent": (lambda: nn.LSTM(8, 8, 2, batch_first=True), torch.linspace(-1, 1, 80).reshape(2, 5, 8)),
}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_within_the_tolerance_and_float32(name, dtype):
    """The outputs are float32, as close as the report says, and the original is what it was."""
    make, sample = MODELS[name]
    model = make().eval()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        full = model(sample)
    full = full if isinstance(full, torch.Tensor) else full[0]

    small = mixprec.convert(model, dtype, sample=sample)
    low = small(sample)
    low = low if isinstance(low, torch.Tensor) else low[0]

    assert low.dtype is torch.float32
    assert small.parity.within
    relative = float((low - full).norm() / full.norm())
    assert relative <= 16 * torch.finfo(small.dtype).eps
    if name != "recurrent":
        assert small.parity.output.relative_error == pytest.approx(relative, rel=1e-3)
        assert small.parity.output.max_error == pytest.approx(float((low - full).abs().max()), rel=1e-3)
        assert small.parity.output.top1 == float((low.argmax(-1) == full.argmax(-1)).double().mean())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    floating = [t for t in small.module.state_dict().values() if t.is_floating_point()]
    assert {t.dtype for t in floating} == {small.dtype}


def test_what_a_policy_runs_in_float32_stays_there():
    """Under `uniform` layer norms keep float32 weights and compute; a module that a rule names is kept whole."""
    small = mixprec.convert(Language(), "fp16", policy="uniform", sample=TOKENS)
    assert set(small.kept) == {"blocks.0.norm", "blocks.1.norm"}
    assert small.module.blocks[0].norm.weight.dtype is torch.float32
    assert {m.dtype for m in small.parity.modules if m.path in small.kept} == {"float32"}

    named = mixprec.convert(Language(), "fp16", policy=Policy.lean().with_module("blocks.1", "fp32"))
    assert {path.startswith("blocks.1") for path in named.kept} == {True}
    assert named.module.blocks[1].mlp[0].weight.dtype is torch.float32
    assert named.module.blocks[0].mlp[0].weight.dtype is torch.float16
    assert named(TOKENS).dtype is torch.float32


def test_ties_stay_tied_also_in_float32():
    """An embedding that the head shares is one tensor after the conversion, and both are kept where one is."""
    small = mixprec.convert(Language(), "fp16", sample=TOKENS)
    assert small.module.head.weight is small.module.embed.weight
    kept = mixprec.convert(Language(), "fp16", policy=Policy.lean().with_module("head", "fp32"))
    assert kept.module.head.weight is kept.module.embed.weight
    assert kept.module.embed.weight.dtype is torch.float32
    assert kept.kept["embed"] == "shares a tensor with head"


def test_weights_that_do_not_survive_are_kept():
    """A running variance of 1e10 overflows fp16 and not bf16; without any sample it is seen."""
    model = vision()
    with torch.no_grad():
        model[1].running_var.fill_(1e10)
    assert "running_var: 8 of 8 values overflow" in mixprec.convert(model, "fp16").kept["1"]
    assert mixprec.convert(model, "bf16").kept == {}


def test_values_that_do_not_fit_are_found_on_the_sample():
    """Activations of 1e5 are kept in float32 until a normalisation has brought them back; the result is right."""
    model = vision()
    with torch.no_grad():
        model[0].weight.mul_(3e5)
        model[1].running_var.fill_(1e4)
        model[1].weight.mul_(1e-3)
    sample = MODELS["vision"][1]
    blind = mixprec.convert(model, "fp16")
    assert not torch.isfinite(blind(sample)).all()

    small = mixprec.convert(model, "fp16", sample=sample)
    assert "do not fit float16" in small.kept["0"]
    assert "4" not in small.kept
    assert small.parity.within
    assert small.parity.output.nonfinite == 0


class Cancelling(nn.Module):
    """A unit that loses everything in 16 bits: the difference of two numbers that are almost equal."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1024.0) - 1024.0


def test_a_module_that_loses_much_is_found_by_measuring():
    """Nothing overflows, but one module rounds its result away: it alone is kept, and its error is the reason."""
    model = nn.Sequential(nn.Linear(8, 8), Cancelling(), nn.Linear(8, 8)).eval()
    sample = torch.randn(16, 8)
    small = mixprec.convert(model, "fp16", sample=sample)
    assert list(small.kept) == ["1"]
    assert small.kept["1"].startswith("measured: in float16 its own error is")
    assert small.parity.within
    loose = mixprec.convert(model, "fp16", sample=sample, tolerance=10.0)
    assert loose.kept == {}
    assert loose.parity.worst(1)[0].path in ("1", "2")


def test_a_tolerance_that_cannot_be_reached_is_reported_and_not_hidden():
    """With everything in float32 but the door's cast the outputs are not equal; `within` says so."""
    small = mixprec.convert(vision(), "fp16", sample=MODELS["vision"][1], tolerance=1e-9)
    assert not small.parity.within
    assert "output: relative error" in str(small.parity)


class Convolutional(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
            nn.Linear(32, 5),
        )


class Recurrent(nn.Module):
    """Whole numbers in; two results, one of them a state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, (last, _) = self.rnn(self.embed(words))
        return self.head(states), last


class Masked(nn.Module):
    """Padding becomes minus infinity inside attention."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, src_key_padding_mask=padding).mean(1)


class Nested(nn.Module):
    """A mapping in, a mapping out, with what is no floating-point tensor in both, and buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.embed, self.head = nn.Linear(6, 8), nn.Embedding(9, 8), nn.Linear(8, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("offset", torch.tensor(1e6))

    def forward(self, batch: dict) -> dict:
        hidden = torch.relu(self.one(batch["x"]) + self.embed(batch["ids"]))
        shifted = self.head(hidden) + (self.offset - 1e6)
        return {"logits": shifted, "known": batch["ids"] > 2, "name": batch["name"]}


AWKWARD = {
    "convolution and batch norm": (Convolutional, lambda: (torch.randn(4, 3, 9, 9),)),
    "recurrent": (Recurrent, lambda: (torch.randint(20, (3, 5)),)),
    "masked": (Masked, lambda: (torch.randn(2, 5, 16), torch.tensor([[0] * 5, [0] * 3 + [1] * 2]).bool())),
    "nested": (Nested, lambda: ({"x": torch.randn(5, 6), "ids": torch.randint(9, (5,)), "name": "one"},)),
}


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # torch.export says it of every LSTM
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", AWKWARD)
def test_kinds_of_models_convert_save_and_export(name, dtype, tmp_path):
    """Each is within the tolerance with no unit in float32, is loaded and exported with the same bits, and hands
    through what is no floating-point tensor.
    """
    make, arguments = AWKWARD[name]
    torch.manual_seed(0)
    model, sample = make().eval(), arguments()
    small = mixprec.convert(model, dtype, sample=sample)
    small.save(tmp_path / "small.safetensors")
    loaded = Converted.load(tmp_path / "small.safetensors", make())
    with torch.no_grad():
        full, low, again = model(*sample), small(*sample), loaded(*sample)
        exported = torch.export.export(small, sample).module()(*sample)

    assert small.parity.within
    assert small.kept == {}
    assert (tree_leaves(low)[-1] == "one") is (name == "nested")
    for before, after, second, third in zip(*map(tree_leaves, (full, low, again, exported)), strict=True):
        if isinstance(before, str):
            continue
        assert before.dtype is after.dtype
        assert torch.equal(after, second)
        torch.testing.assert_close(after, third, rtol=0, atol=0 if name != "masked" else 1e-2)


def test_sample_may_be_a_tuple_or_named():
    """A tuple is the positional arguments, a mapping the named ones; the parity is the same."""
    model = Language().eval()
    parities = [
        mixprec.convert(model, "fp16", sample=sample).parity.output
        for sample in (TOKENS, (TOKENS,), {"tokens": TOKENS})
    ]
    assert parities[0] == parities[1] == parities[2]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_saved_and_loaded_it_gives_the_same(tmp_path, dtype):
    """One safetensors file brings back weights, policy, what is kept and where casts stand, bit for bit."""
    pytest.importorskip("safetensors", reason="extra: convert")
    small = mixprec.convert(Language(), dtype, policy="uniform", sample=TOKENS)
    small.save(tmp_path / "model.safetensors")
    loaded = Converted.load(tmp_path / "model.safetensors", Language())

    assert torch.equal(loaded(TOKENS), small(TOKENS))
    assert loaded.policy == small.policy
    assert loaded.kept == small.kept
    from safetensors.torch import load_file, save_file

    names = set(load_file(tmp_path / "model.safetensors"))
    assert names | {"head.weight", "embed.weight"} == set(Language().state_dict())

    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="not a model that Converted"):
        Converted.load(tmp_path / "other.safetensors", Language())


REFUSED = {
    "dtype": (lambda m: mixprec.convert(m, "fp8"), InvalidValueError, "accepted is 'fp16' or 'bf16'"),
    "no module": (lambda m: mixprec.convert("model"), InvalidValueError, "accepted is a torch.nn.Module"),
    "16 bits already": (lambda m: mixprec.convert(m.half()), InvalidValueError, "convert the float32 model"),
    "policy": (lambda m: mixprec.convert(m, policy="leen"), UnknownNameError, "did you mean 'lean'"),
    "tolerance": (lambda m: mixprec.convert(m, tolerance=0.1), InvalidValueError, "nothing to measure on"),
    "training": (lambda m: mixprec.convert(m).train(), InvalidValueError, "is for inference"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_converted_is_refused(name):
    """Each beside the nearest that is accepted."""
    act, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        act(vision())
    assert mixprec.convert(vision(), "fp16", policy="lean").eval().training is False


def test_numpy_takes_the_results():
    """A bf16 model's results go to numpy, which has no bf16."""
    assert mixprec.convert(vision(), "bf16")(MODELS["vision"][1]).numpy().dtype == numpy.float32
