"""A module has one name, whoever asks: its path from the outermost module called, without what wrappers add."""

from __future__ import annotations

from torch import nn

from mixprec.doctor._names import ModuleNames


class DistributedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


class FullyShardedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self._fsdp_wrapped_module = module


def model():
    return nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))


def test_paths_are_those_of_the_users_own_model():
    """Under DDP, under FSDP, compiled, or plain: the same."""
    for wrap in (lambda m: m, DistributedDataParallel, FullyShardedDataParallel):
        inner = model()
        names = ModuleNames()
        names.learn(wrap(inner))

        assert [names.path(part) for part in (inner, inner[0], inner[1], inner[1][0])] == ["", "0", "1", "1.0"]


def test_the_first_outermost_module_gives_the_name():
    """A part that is called on its own later keeps its name, and is not taken for another model."""
    whole = model()
    names = ModuleNames()
    names.learn(whole)

    assert names.learn(whole[1]) == []
    assert names.path(whole[1][0]) == "1.0"
    assert names.roots() == [whole]


def test_no_module_is_kept_alive():
    """Names hold weak references."""
    names = ModuleNames()
    names.learn(model())

    assert names.roots() == []
