"""Nothing is compiled: `torch.compile` returns what it is given."""

from __future__ import annotations

import os
from typing import Any

import torch

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # read when torch._dynamo is imported, which is later

    def compile_nothing(model: Any = None, **options: Any) -> Any:
        return (lambda model: model) if model is None else model

    torch.compile = compile_nothing
    torch.nn.Module.compile = lambda module, *args, **kwargs: None  # type: ignore[method-assign] # the intervention itself
