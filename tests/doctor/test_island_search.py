"""A captured call is made again with other modules in float32 until the smallest part is known that cures it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mixprec._taps import listen
from mixprec.doctor._module_patch import module_changes
from mixprec.doctor._recorder._island import IslandSearch


class Enough(BaseException):
    """The process would end here."""


class Writer:
    """Keeps facts."""

    def __init__(self):
        self.facts = {}

    def fact(self, name, value):
        self.facts[name] = value


class Scene:
    """An iteration and a writer."""

    def __init__(self):
        self.iteration = 0
        self.writer = Writer()


def enough():
    raise Enough


def search(step, iterations=(0,), steps=1):
    """What the search leaves behind after `steps` calls of `step(scene)`, and whether it ended the run."""
    scene = Scene()
    with listen(IslandSearch(scene, iterations, 20.0, enough)):
        try:
            for _ in range(steps):
                step(scene)
                scene.iteration += 1
        except Enough:
            return scene.writer.facts, True
    return scene.writer.facts, False


def block(width=8):
    return nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))


def grown(layer, factor=3e5):
    with torch.no_grad():
        layer.weight.mul_(factor)
    return layer


def training(model, x, loss=lambda out: out.float().pow(2).mean(), scale=1.0):
    """A step under FP16 autocast whose optimizer's step is the end of an iteration."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(scene):
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        (loss(out) * scale).backward()
        optimizer.step()

    return step


class Norm(nn.Module):
    """Squares by hand, beyond 65504."""

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1).sqrt()


class Net(nn.Module):
    """Layers that it calls in a loop, each normalised in float32."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(x + layer(x).float())
        return x


def layers(*large):
    """Five blocks; the last layer of some gives numbers beyond FP16."""
    blocks = [block() for _ in range(5)]
    for number in large:
        grown(blocks[number][2])
    return blocks


def test_one_layer_of_a_container_that_the_model_loops_over():
    """A block's last layer is enough: its output goes into float32."""
    torch.manual_seed(0)
    facts, ended = search(training(Net(*layers(3)), torch.randn(4, 8)))

    island = facts["island"]
    assert ended
    assert (island["modules"], island["complete"], island["phase"]) == (["layers.3.2"], True, "forward")
    assert island["parts"][0] | {"kind": "Linear", "low": ["float16"], "others": False} == island["parts"][0]


def test_a_layer_and_those_that_cannot_read_it():
    """In a plain chain the next layers are given the large numbers too, and belong to the island."""
    torch.manual_seed(0)
    blocks = layers()
    grown(blocks[1][2], 3e6)
    model = nn.Sequential(*blocks, nn.LayerNorm(8))
    facts, _ = search(training(model, torch.randn(4, 8)))

    assert facts["island"]["modules"][:2] == ["1.2", "2.0"]
    with torch.no_grad():
        assert all(path.split(".")[1] != "1" for path in facts["island"]["modules"])  # no GELU is needed


def test_two_layers_of_two_blocks():
    """Both are named, none else; a few questions suffice."""
    torch.manual_seed(0)
    facts, _ = search(training(Net(*layers(1, 4)), torch.randn(4, 8)))

    assert facts["island"]["modules"] == ["layers.1.2", "layers.4.2"]
    assert facts["island"]["probes"] <= 24


def test_a_modules_own_code_is_the_module():
    """What `Norm` computes by hand needs `Norm`, wherever it stands."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), grown(nn.Linear(8, 8), 600.0), Norm(), nn.Linear(8, 1))
    facts, _ = search(training(model, torch.randn(4, 8)))

    assert facts["island"]["modules"] == ["2"]


def test_the_gradient_of_a_layer_is_beyond_fp16():
    """Forward is healthy; the search runs backward again from the gradients that the outputs had."""

    class Gain(nn.Module):
        def forward(self, x):
            return x + (x - x.detach()) * 1e4

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Gain(), nn.Linear(8, 8), Gain(), nn.Linear(8, 1))
    facts, ended = search(training(model, torch.randn(4, 8), loss=lambda out: out.float().mean()))

    assert ended
    assert facts["island"]["phase"] == "backward"
    with_gradient_of_float32 = {"0", "2"}
    assert set(facts["island"]["modules"]) <= with_gradient_of_float32


@pytest.mark.parametrize("kind", ["healthy", "loss", "weights"])
def test_where_no_module_is_at_fault_none_is_named(kind):
    """A healthy step; a loss that overflows outside; a NaN that float32 does not cure."""
    torch.manual_seed(0)
    model = Net(*layers())
    if kind == "weights":
        with torch.no_grad():
            model.layers[2][0].weight[0, 0] = torch.nan
    loss = (lambda out: (out.half() * 300).square().sum()) if kind == "loss" else (lambda out: out.mean())
    facts, ended = search(training(model, torch.randn(4, 8), loss))

    assert not ended
    assert not facts.get("island", {}).get("modules")


def test_half_weights_have_no_island():
    """Float32 does not fit layers whose weights are in 16 bits: nothing is named and nothing raised."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), grown(nn.Linear(8, 8)), nn.Linear(8, 8)).half()
    facts, ended = search(training(model, torch.randn(4, 8).half(), loss=lambda out: out.sum()))

    assert not ended
    assert facts["island"]["modules"] == []


def test_the_run_goes_on_as_if_nothing_had_been_asked():
    """Where the search finds nothing, random state, buffers, weights and gradients are those of a run without it."""

    def made(listening):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(scene):
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(torch.randn(4, 8))
            out.float().mean().backward()
            optimizer.step()

        if listening:
            search(step, iterations=(0, 1), steps=2)
        else:
            step(None)
            step(None)
        return [*model.state_dict().values(), torch.rand(2), *[p.grad for p in model.parameters()]]

    assert all(torch.equal(a, b) for a, b in zip(made(True), made(False), strict=True))


def test_a_later_iteration_and_keyword_arguments():
    """Only in the iterations that were asked for; what is given by keyword is cast too."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.join = Join()

        def forward(self, x):
            return self.join(None, y=self.inner(x))

    class Join(nn.Module):
        def forward(self, x, y):
            return y.square() + 1

    torch.manual_seed(0)
    model = Two()

    def step(scene):
        with torch.autocast("cpu", dtype=torch.float16):
            model(torch.full((2, 8), 30.0**scene.iteration)).mean()

    facts, _ = search(step, iterations=(2,), steps=4)

    island = facts["island"]
    assert (island["iteration"], island["modules"]) == (2, ["join"])
    assert (island["parts"][0]["keywords"], island["parts"][0]["others"]) == (True, True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_model_is_left_or_searched(reentrant):
    """What is recomputed in backward is no new call."""
    torch.manual_seed(0)
    net = Net(*layers(2))

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return checkpoint(self.net, x, use_reentrant=reentrant)

    facts, _ = search(training(Checkpointed(), torch.randn(4, 8, requires_grad=True)))

    assert facts["island"]["modules"] == ["net.layers.2.2"]


SCRIPT = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8))

    def forward(self, x):
        return self.net(x)


def train(model, steps):
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.float16):
            model(torch.ones(2, 8)).float().sum().backward()


def main():
    for fold in range(2):
        model = Net()
        with torch.no_grad():
            model.net[1].weight.mul_(1e6)
        train(model, 2)


main()
"""


def test_the_patch_stands_after_the_model_is_built_and_cures(tmp_path):
    """In the outermost function that has the model, inside the loop that builds it, before it trains."""
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    torch.manual_seed(0)
    names = {"__name__": "__main__"}
    facts, _ = search(lambda scene: exec(compile(SCRIPT, str(file), "exec"), names))

    first = next(module_changes(facts["island"], {}))

    assert [line for line in first.diff.splitlines()[3:] if line[0] in "+-"] == [
        "+        part = model.net[1]  # computes in float32 from here on",
        '+        part.forward = torch.autocast("cpu", enabled=False)(type(part).forward).__get__(part)',
        "+        part.register_forward_pre_hook(lambda _, given: tuple(x.float() for x in given))",
    ]
    assert first.about == "`net.1` computes in float32, with autocast off in it."
    facts, ended = search(lambda scene: exec(compile(first.after, str(file), "exec"), dict(names)))
    assert (facts, ended) == ({}, False)


def patched(model, island):
    """The model after the lines of the patch, as they are written."""
    holder = {"name": "model", "paths": island["modules"], "torch": True}
    from mixprec.doctor._module_patch import _lines

    exec("\n".join(_lines(island, holder, ())), {"model": model, "torch": torch})
    return model


def test_a_copy_of_a_patched_model_computes_with_its_own_weights():
    """As an average of the weights does: `forward` is bound to each copy."""
    torch.manual_seed(0)
    model = Net(*layers(1, 3))
    x = torch.randn(4, 8)
    facts, _ = search(training(model, x))
    patched(model, facts["island"])
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    with torch.autocast("cpu", dtype=torch.float16):
        assert not torch.equal(other(x), model(x))
        assert other(x).isfinite().all()


def test_a_patched_model_gives_what_float32_gives_there():
    """Inside the island the numbers are those of a run without autocast."""
    torch.manual_seed(0)
    model = Net(*layers(2))
    x = torch.randn(4, 8)
    facts, _ = search(training(model, x))
    given = []
    patched(model, facts["island"])
    part = model.layers[2][2]
    part.register_forward_hook(lambda module, args, output: given.append((args[0], output)))
    with torch.autocast("cpu", dtype=torch.float16):
        model(x)

    assert given[0][0].dtype == torch.float32
    assert torch.equal(given[0][1], nn.functional.linear(given[0][0], part.weight, part.bias))


def test_no_variable_no_patch(tmp_path):
    """Where no running function has the model in a variable, there is nothing to write."""
    island = {"modules": ["0"], "parts": [{"nested": False, "device": "cpu", "low": []}], "holders": []}
    assert list(module_changes(island, {})) == []
    gone = {"file": str(tmp_path / "gone.py"), "function": "<module>", "line": 1, "name": "m", "paths": ["0"]}
    assert list(module_changes({**island, "holders": [{**gone, "torch": True}]}, {})) == []
