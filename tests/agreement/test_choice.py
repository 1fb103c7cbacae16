"""Who has to agree is read off the parameters and the argument; without a process group it is this process alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from mixprec import GradScaler
from mixprec._agreement import (
    Agreement,
    Agreements,
    Alone,
    OnDisagreement,
    Ranks,
    agreement_for,
    settle,
)
from mixprec.errors import DisagreementError


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process only."""
    dist.init_process_group("gloo", f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Elsewhere(Agreement):
    """As if a second rank always had found nothing, or something."""

    size = 2

    def __init__(self, other: float) -> None:
        self.other = other

    def total(self, values: Tensor) -> Tensor:
        return values + self.other


def test_without_process_groups_it_is_this_process_alone() -> None:
    """Whatever is asked for, there is nobody to ask."""
    params = [nn.Parameter(torch.ones(2))]
    assert isinstance(agreement_for(params), Alone)
    assert isinstance(agreement_for(params, "world"), Alone)
    assert Alone().agree(torch.ones(())).item() == 1.0
    assert Alone().share(params[0], params[0]) == 1.0


@pytest.mark.usefixtures("one_rank")
def test_a_group_of_one_costs_nothing() -> None:
    """It is this process alone, by whatever name."""
    params = [nn.Parameter(torch.ones(2))]
    for group in ("world", dist.group.WORLD, [dist.group.WORLD], Ranks(replicated=[dist.group.WORLD])):
        assert isinstance(agreement_for(params, group), Alone)


def test_an_agreement_of_one_s_own_needs_one_method() -> None:
    """`total` is enough to step by: the other rank's flag decides, and the norm is over both."""
    for other, applied in ((0.0, True), (1.0, False)):
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
        scaler = GradScaler("cpu", init_scale=2.0, process_group=Elsewhere(other))
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.report(optimizer).applied is applied
        assert bool((weight == 1.0).all()) is not applied
    with pytest.raises(NotImplementedError, match="override gather"):
        scaler.check_ranks(optimizer)


def test_agreements_are_looked_up_once() -> None:
    """Again only when parameters were added."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    agreements = Agreements()
    first = agreements.of([optimizer])
    assert agreements.of([optimizer]) is first
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    assert agreements.of([optimizer]) is not first


def test_settling_compares_whole_states() -> None:
    """Equal scales with different counters differ too; a repair takes the lowest scale, then the lowest count."""

    class Two(Elsewhere):
        def gather(self, values: Tensor) -> list[Tensor]:
            return [values, values + torch.tensor([1.0, 0.0, -1.0])]

    agreement, state = Two(0.0), torch.tensor([8.0, 3.0], dtype=torch.float64)
    with pytest.raises(DisagreementError, match=r"rank 0: 8, rank 1: 8"):
        settle(agreement, state, OnDisagreement.RAISE)
    assert settle(agreement, state, OnDisagreement.REPAIR) == (8.0, 2.0)
    assert settle(Alone(), state, OnDisagreement.RAISE) is None
