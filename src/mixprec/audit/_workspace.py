"""A workspace that an op hands to its backward has a size that only the library knows; so the library is asked.

Recurrent layers of oneDNN keep one for backward, an opaque tensor of bytes whose size depends on the dtype. The op is
run on the first time steps of its own inputs in each dtype; what it keeps is linear in the number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["workspaces_of"]

STEPS = 32
"""Time steps of a run that asks; of a longer sequence, twice as many are asked too, and the rest is extrapolated."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def workspaces_of(name: str, func: Any, args: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    """(dtype, bytes of workspace) of each dtype that the device runs the op in; empty for ops that keep none.

    **Cost**: for `mkldnn_rnn_layer` a forward pass of up to 64 time steps in three dtypes, for all else nothing.
    """
    if name != "mkldnn_rnn_layer" or isinstance(args[0], FakeTensor):
        return ()
    found = []
    for dtype in _DTYPES:
        size = _asked(func, [x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in args])
        if size is not None:
            found.append((str(dtype).removeprefix("torch."), size))
    return tuple(found)


def _asked(func: Any, args: Sequence[Any]) -> int | None:
    steps = args[0].shape[0]
    try:
        if steps <= 2 * STEPS:
            return _kept(func, args, steps)
        few, more = _kept(func, args, STEPS), _kept(func, args, 2 * STEPS)
    except RuntimeError:  # this CPU has no kernel for the dtype
        return None
    slope = (more - few) * (steps - STEPS) // STEPS
    return few + int(slope)


def _kept(func: Any, args: Sequence[Any], steps: int) -> int:
    out = func(args[0][:steps].contiguous(), *args[1:])
    return int(out[-1].untyped_storage().nbytes())
