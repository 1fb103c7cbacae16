"""A converted model takes and gives float32, is saved with how it was made, and goes wherever a module goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from mixprec._convert._doors import cast
from mixprec._convert._lowering import Lowering
from mixprec._convert._parity import Parity
from mixprec._policy import Policy
from mixprec.errors import CheckpointError, InvalidValueError, MissingExtraError

__all__ = ["DTYPES", "Converted", "dtype_named"]

DTYPES: Mapping[str, torch.dtype] = MappingProxyType({"fp16": torch.float16, "bf16": torch.bfloat16})

_VERSION = "1"
_SAVED = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dtype_named(name: object) -> torch.dtype:
    """The dtype called `name`. Raises: InvalidValueError."""
    if isinstance(name, torch.dtype) and name in DTYPES.values():
        return name
    if isinstance(name, str) and name in DTYPES:
        return DTYPES[name]
    raise InvalidValueError("dtype", name, "'fp16' or 'bf16'")


class Converted(nn.Module):
    """What `convert` gives: `module` in 16 bits behind doors that cast.

    Floating-point inputs of any dtype are cast at the door, floating-point results come out as float32. `kept` says
    which units run in float32 and why, `kept_tensors` which tensors outside units do, `parity` how close the results
    are (None without a sample), `policy` by what it was decided.
    """

    def __init__(self, lowering: Lowering, policy: Policy, parity: Parity | None) -> None:
        super().__init__()
        self.module = lowering.model
        self.dtype = lowering.dtype
        self.policy = policy
        self.parity = parity
        self.kept: Mapping[str, str] = dict(sorted(lowering.kept.items()))
        self.kept_tensors: Mapping[str, str] = dict(sorted(lowering.tensors.items()))
        self._wide = tuple(sorted(lowering.wide))
        self._doors = tuple(sorted(lowering.entrances))
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module on `args` cast to its dtype; results in float32."""
        return cast(self.module(*cast(args, self.dtype), **cast(kwargs, self.dtype)), torch.float32)

    def train(self, mode: bool = True) -> Converted:
        """Only evaluation. Raises: InvalidValueError for training, which needs float32 weights."""
        if mode:
            advice = "It has no float32 weights to update; train the original, under mixprec.Precision."
            raise InvalidValueError("mode", mode, "False: a converted model is for inference", advice)
        super().train(False)
        return self

    def save(self, path: str | Path) -> None:
        """Write weights, policy and what is kept to one safetensors file.

        The policy and the kept units are in the file's metadata, so any reader of safetensors sees weights under the
        names that the original model has.

        Raises: MissingExtraError without the package safetensors.
        """
        try:
            from safetensors.torch import save_model
        except ModuleNotFoundError as error:
            raise MissingExtraError("safetensors", "convert", "Converted.save") from error
        about = {
            "dtype": str(self.dtype).removeprefix("torch."),
            "policy": str(self.policy),
            "kept": self.kept,
            "wide": self._wide,
            "doors": self._doors,
        }
        save_model(
            self.module, str(path), {"format": "pt", "mixprec": _VERSION, "mixprec.converted": json.dumps(about)}
        )

    @classmethod
    def load(cls, path: str | Path, model: nn.Module) -> Converted:
        """The converted model that was saved at `path`; `model` is one of the same architecture, its values ignored.

        Raises: CheckpointError for another file, MissingExtraError without the package safetensors.
        """
        try:
            from safetensors import safe_open
            from safetensors.torch import load_model
        except ModuleNotFoundError as error:
            raise MissingExtraError("safetensors", "convert", "Converted.load") from error
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            dtypes = {name: _SAVED[file.get_slice(name).get_dtype()] for name in _floating(file)}
        if metadata.get("mixprec") != _VERSION:
            raise CheckpointError(
                "mixprec", f"{path} is not a model that Converted.save wrote: it says nothing of how."
            )
        about = json.loads(metadata["mixprec.converted"])
        lowering = Lowering(model, getattr(torch, about["dtype"]), about["kept"])
        lowering.match(dtypes)
        for unit in about["wide"]:
            lowering.widen(unit)
        lowering.only_doors(set(about["doors"]))
        load_model(lowering.model, str(path))
        return cls(lowering, Policy.parse(about["policy"]), None)


def _floating(file: Any) -> list[str]:
    return [name for name in file.keys() if file.get_slice(name).get_dtype() in _SAVED]  # noqa: SIM118 - no mapping
