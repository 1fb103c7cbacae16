"""Compiled code sees what eager code sees, and its backward pass is cast as eager backward passes are: not at all.

- Dynamo asks a set which functions a mode may see, and the set holds public names only: the op inside `F.pad`,
  `F.interpolate` or `F.mse_loss` would be hidden from a policy that sees it eagerly. The missing builtins of
  `torch._C._nn` are added to it.
- AOT autograd traces the backward pass under the autocast state of the region, by default. The products in the
  backward pass of an op that a policy keeps in float32 would be cast to 16 bits, and overflow in float16 where eager
  ones do not. While a region with a policy of its own is active, PyTorch's switch for this is off.

Both seen in torch 2.13; each may go when PyTorch does it by itself.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

__all__ = ["plain_backward", "teach_dynamo"]

_MODULE = "torch._dynamo.variables.torch"


def teach_dynamo() -> bool:
    """Add the builtins, if Dynamo is loaded and has such a set: whether it has.

    **Cost**: two dictionary lookups when there is nothing to do.
    """
    module = sys.modules.get(_MODULE)
    known = getattr(module, "get_overridable_functions", None)
    if known is None:
        return False
    functions = known()
    if torch._C._nn.pad not in functions:
        functions.update(f for name, f in vars(torch._C._nn).items() if callable(f) and not name.startswith("__"))
    return True


teach_dynamo._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does, without loading torch._dynamo


_regions = 0
_before: Any = None
_lock = threading.Lock()


def plain_backward(change: int) -> None:
    """One region with a policy of its own more (+1) or less (-1): while there are any, backward is traced uncast.

    A setting of the user's other than PyTorch's default is left alone. **Cost**: 5 us for the first and the last.
    """
    global _regions, _before
    from torch._functorch import config  # here, because only such regions need it

    with _lock:
        _regions += change
        if change > 0 and _regions == 1 and getattr(config, _SETTING, None) == _DEFAULT:
            _before = _DEFAULT
            setattr(config, _SETTING, "off")
        elif not _regions and _before is not None:
            setattr(config, _SETTING, _before)
            _before = None


_SETTING, _DEFAULT = "backward_pass_autocast", "same_as_forward"
