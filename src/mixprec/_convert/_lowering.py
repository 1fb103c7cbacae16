"""The copy that is lowered and the model that it was copied from stay in step: a unit can be raised again, exactly."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mixprec._convert._doors import Entrance, Exit
from mixprec._convert._survival import survival
from mixprec._convert._units import own_tensors, units

__all__ = ["Lowering"]


class Lowering:
    """A copy of `model` in `dtype`. `kept` maps the paths of units that run in float32 to the reason.

    `wide` are units whose results do not fit `dtype` and stay float32 until a unit casts them.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype, kept: dict[str, str]) -> None:
        self.dtype = dtype
        self.kept: dict[str, str] = {}
        self.wide: set[str] = set()
        self.tensors: dict[str, str] = {}
        self._loose: list[tuple[str, nn.Module, str]] = []
        self._original = dict(model.named_modules())
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._modules = dict(self.model.named_modules())
        self._handles: dict[str, list[Any]] = {}
        self.entrances: dict[str, Entrance] = {}
        self._low: dict[int, Tensor] = {}
        self._full: dict[int, Tensor] = {}
        self._held: list[Tensor] = []  # so that no id is given twice
        self._lower(set(kept))
        for path, reason in kept.items():
            self.keep(path, reason)

    def keep(self, path: str, reason: str) -> None:
        """Run the unit at `path` in float32."""
        if path in self.kept:
            return
        self.kept[path] = reason
        module = self._modules[path]
        for (owner, name, _), (_, _, full) in zip(
            list(own_tensors(module, whole=True)), own_tensors(self._original[path], whole=True), strict=True
        ):
            _put(owner, name, self._full_one(full))
        self._furnish(path, module)

    def widen(self, path: str) -> None:
        """Leave the results of the unit at `path` in float32: they do not fit."""
        self.wide.add(path)
        self._furnish(path, self._modules[path])

    def prune(self) -> None:
        """Take out the doors of lowered units that had nothing to cast."""
        self.only_doors({path for path, entrance in self.entrances.items() if entrance.used})

    def only_doors(self, paths: Collection[str]) -> None:
        """Take out the doors of lowered units that are not in `paths`."""
        for path in [path for path in self.entrances if path not in self.kept and path not in paths]:
            self._remove_doors(path)

    def match(self, dtypes: Mapping[str, torch.dtype]) -> None:
        """Give tensors outside units the dtypes that they have in `dtypes`, by their names in the state dict."""
        for place, owner, name in self._loose:
            wanted = dtypes.get(place)
            if wanted is not None:
                tensor = owner.get_parameter(name) if name in owner._parameters else owner.get_buffer(name)
                _put(owner, name, _like(tensor, tensor.detach().to(wanted)))
        self.tensors = dict.fromkeys(self._loose_full(), "kept when it was saved")

    def _loose_full(self) -> list[str]:
        return [place for place, owner, name in self._loose if getattr(owner, name).dtype is torch.float32]

    def _remove_doors(self, path: str) -> None:
        for handle in self._handles.pop(path):
            handle.remove()
        del self.entrances[path]

    def _lower(self, kept: set[str]) -> None:
        found = dict(units(self.model))
        for path, module in found.items():
            if path not in kept:
                for owner, name, tensor in list(own_tensors(module, whole=True)):
                    self._lower_one(owner, name, tensor)
                self._furnish(path, module)
        inside = {id(m) for unit in found.values() for m in unit.modules()}
        for path, module in self._modules.items():
            if id(module) not in inside:
                for owner, name, tensor in list(own_tensors(module, whole=False)):
                    place = f"{path}.{name}".lstrip(".")
                    self._loose.append((place, owner, name))
                    self._lower_own(place, owner, name, tensor)

    def _lower_own(self, place: str, owner: nn.Module, name: str, tensor: Tensor) -> None:
        """What belongs to no unit is cast where its values survive, else kept: what it meets is promoted to float32."""
        found = survival(tensor, self.dtype)
        if found.survives:
            self._lower_one(owner, name, tensor)
        else:
            self.tensors[place] = found.reason

    def _lower_one(self, owner: nn.Module, name: str, tensor: Tensor) -> None:
        low = self._low.get(id(tensor))
        if low is None:
            low = self._low[id(tensor)] = _like(tensor, tensor.detach().to(self.dtype))
            self._held.append(tensor)
        _put(owner, name, low)

    def _full_one(self, original: Tensor) -> Tensor:
        """A float32 copy, the same one for tensors that are tied."""
        copied = self._full.get(id(original))
        if copied is None:
            copied = self._full[id(original)] = _like(original, original.detach().clone())
        return copied

    def _furnish(self, path: str, module: nn.Module) -> None:
        """Hang the doors that the unit needs as it is now."""
        for handle in self._handles.pop(path, []):
            handle.remove()
        full = path in self.kept
        entrance = Entrance(torch.float32 if full else self.dtype)
        self.entrances[path] = entrance
        handles = [module.register_forward_pre_hook(entrance, with_kwargs=True)]
        if full and path not in self.wide:
            handles.append(module.register_forward_hook(Exit(self.dtype)))
        self._handles[path] = handles


def _put(owner: nn.Module, name: str, tensor: Tensor) -> None:
    store: dict[str, Any] = owner._parameters if name in owner._parameters else owner._buffers
    store[name] = tensor


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    return nn.Parameter(values, requires_grad=False) if isinstance(tensor, nn.Parameter) else values
