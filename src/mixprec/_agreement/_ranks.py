"""Process groups that together span a grid: a sum over each in turn is the sum over all ranks of the grid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mixprec._agreement._agreement import Agreement, on_group_device

_FSDP_FLATTENED = "_fsdp_flattened"  # what FSDP1 sets on the parameters that it shards: fsdp/_common_utils.py


@dataclass(frozen=True, eq=False)
class Group:
    """A process group and what its ranks hold: the same plain parameters, or (`disjoint`) different ones."""

    group: Any
    ranks: tuple[int, ...]
    disjoint: bool = False

    @classmethod
    def of(cls, group: Any, *, disjoint: bool = False) -> Group:
        """The group with its global ranks looked up."""
        return cls(group, tuple(dist.get_process_group_ranks(group)), disjoint)

    def within(self, ranks: Iterable[int]) -> bool:
        """Whether all its ranks are among `ranks`."""
        return set(self.ranks) <= set(ranks)


class Ranks(Agreement):
    """The ranks of several process groups that cross each other, such as data-, tensor- and pipeline-parallel ones.

    `replicated` are groups whose ranks hold the same plain parameters and gradients (data parallel), `sharded` those
    whose ranks hold different ones (pipeline stages, experts, tensor parallelism with plain tensors). Parameters that
    FSDP1 or DTensor shards say so themselves, whichever group they are in.

    **Cost** of a step: one all-reduce of 16 bytes if the groups are one or span the whole world, else one per group;
    under headroom rules an all-gather of 24 bytes per rank in its place.
    """

    def __init__(self, replicated: Sequence[Any] = (), sharded: Sequence[Any] = ()) -> None:
        self._hold(
            [Group.of(group) for group in replicated] + [Group.of(group, disjoint=True) for group in sharded],
            crossing=True,
        )

    @classmethod
    def spanning(cls, groups: Sequence[Group], *, crossing: bool) -> Ranks:
        """The ranks of `groups`. If they are not known to cross as a grid does, the whole world takes part."""
        ranks = cls.__new__(cls)
        ranks._hold(groups, crossing)
        return ranks

    def joined(self, groups: Sequence[Group], *, crossing: bool) -> Ranks:
        """These ranks and those of `groups`."""
        return Ranks.spanning([*self.groups, *groups], crossing=crossing)

    def _hold(self, groups: Sequence[Group], crossing: bool) -> None:
        self.groups = _distinct(groups)
        outer = [group for group in self.groups if not _inside_another(group, self.groups)]
        world = dist.get_world_size()
        if math.prod(len(group.ranks) for group in outer) == world or (len(outer) > 1 and not crossing):
            outer = [Group.of(dist.group.WORLD)]
        self._collectives = outer
        self.size = math.prod(len(group.ranks) for group in outer)

    def total(self, values: Tensor) -> Tensor:
        sent = values
        for group in self._collectives:
            sent = on_group_device(sent, dist.get_backend(group.group))
            dist.all_reduce(sent, group=group.group)
        return sent.to(values.device)

    def gather(self, values: Tensor) -> list[Tensor]:
        gathered = values.reshape(1, -1)
        for group in self._collectives:
            gathered = on_group_device(gathered, dist.get_backend(group.group))
            parts = [torch.empty_like(gathered) for _ in group.ranks]
            dist.all_gather(parts, gathered, group=group.group)
            gathered = torch.cat(parts)
        return list(gathered.to(values.device).unbind())

    def share(self, param: Tensor, grad: Tensor) -> float:
        return self._pieces(param, grad) / self.size

    def _pieces(self, param: Tensor, grad: Any) -> int:
        """How many different pieces of the gradient the ranks hold between them."""
        if getattr(param, _FSDP_FLATTENED, False):
            return self.size
        mesh = getattr(grad, "device_mesh", None)
        if mesh is None:
            return math.prod(len(group.ranks) for group in self.groups if group.disjoint)
        members = mesh.mesh.flatten().tolist()
        shards: int = math.prod(mesh.size(dim) for dim, place in enumerate(grad.placements) if not place.is_replicate())
        return shards * math.prod(len(g.ranks) for g in self.groups if g.disjoint and not g.within(members))


def _distinct(groups: Iterable[Group]) -> list[Group]:
    """The groups of more than one rank, each set of ranks once; the first mention decides what its ranks hold."""
    found: dict[tuple[int, ...], Group] = {}
    for group in groups:
        if len(group.ranks) > 1:
            found.setdefault(tuple(sorted(group.ranks)), group)
    return list(found.values())


def _inside_another(group: Group, groups: Iterable[Group]) -> bool:
    return any(group is not other and group.within(other.ranks) for other in groups)
