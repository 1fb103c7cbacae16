"""Who has to agree is read off the parameters: ranks of a DTensor's mesh always, others where the caller names them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mixprec._agreement._agreement import Agreement, Alone
from mixprec._agreement._ranks import Group, Ranks

Grouping: TypeAlias = "Any | Sequence[Any] | Agreement | None"
"""A process group, several of them, `"world"`, an `Agreement`, or None for what the parameters say."""

WORLD = "world"
"""As `process_group`: the ranks of the default group, looked up when they are needed."""

PIPELINE_DIMENSIONS = frozenset({"pp", "pipe", "pipeline", "stage"})
"""Names of mesh dimensions along which ranks hold different parameters, in the manner of torchtitan."""


def agreement_for(params: Iterable[Tensor], process_group: Grouping = None) -> Agreement:
    """Which ranks have to agree about the gradients of `params`.

    - DTensor parameters (FSDP2, tensor parallelism): every rank of the mesh that theirs was cut from, whatever the
      placements, so that an infinity on one rank of a replicated dimension is known to all.
    - `process_group`: also the ranks of this group, or of these groups (`"world"`: all ranks), whose plain parameters
      are taken to be replicated unless FSDP1 has sharded them. An `Agreement` of your own is used as it is.
    - Neither: this process alone. That is right for DDP, whose all-reduce carries an infinity to every rank.

    **Cost**: Python only, once per optimizer; no collective.
    """
    if isinstance(process_group, Agreement) and not isinstance(process_group, Ranks):
        return process_group
    meshes = _meshes(params)
    if process_group is None and not meshes:
        return Alone()
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Alone()
    return _spanning(process_group, meshes)


class Agreements:
    """The agreement of each optimizer, found once; found again when parameters were added."""

    def __init__(self, process_group: Grouping = None) -> None:
        self._process_group = process_group
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[int, Agreement]] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, optimizers: Sequence[torch.optim.Optimizer]) -> Agreement:
        """Which ranks have to agree about a step of all `optimizers`."""
        if len(optimizers) != 1:
            return agreement_for([param for each in optimizers for param in _params(each)], self._process_group)
        (optimizer,) = optimizers
        count = sum([len(group["params"]) for group in optimizer.param_groups])
        known = self._known.get(optimizer)
        if known is None or known[0] != count:
            known = self._known[optimizer] = (count, agreement_for(_params(optimizer), self._process_group))
        return known[1]


def _params(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


def _spanning(process_group: Grouping, meshes: list[Any]) -> Agreement:
    if process_group is None:
        named = Ranks.spanning([], crossing=True)
    elif isinstance(process_group, Ranks):
        named = process_group
    elif process_group == WORLD:
        named = Ranks(replicated=[torch.distributed.group.WORLD])
    else:
        several = list(process_group) if isinstance(process_group, (list, tuple)) else [process_group]
        named = Ranks(replicated=several)
    roots = list(dict.fromkeys(_root(mesh) for mesh in meshes))
    dims = [
        Group.of(root.get_group(dim), disjoint=_name(root, dim) in PIPELINE_DIMENSIONS)
        for root in roots
        for dim in range(root.ndim)
    ]
    joined = named.joined(dims, crossing=len(roots) <= 1)
    return joined if joined.size > 1 else Alone()


def _meshes(params: Iterable[Tensor]) -> list[Any]:
    """The device meshes of the DTensors among `params`, each once."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None:
        return []
    return list(dict.fromkeys(p.device_mesh for p in params if isinstance(p, distributed.DTensor)))


def _root(mesh: Any) -> Any:
    """The mesh that `mesh` was cut from; itself if it was not."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed.device_mesh import _mesh_resources  # before torch 2.9

    return _mesh_resources.get_root_mesh(mesh)


def _name(mesh: Any, dim: int) -> str | None:
    names = mesh.mesh_dim_names
    return names[dim] if names else None
