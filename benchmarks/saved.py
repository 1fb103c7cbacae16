"""What autograd keeps until backward is counted once per piece of memory, however many ops and views keep it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def saved_bytes(forward: Callable[[], object], parameters: Iterable[Tensor]) -> int:
    """Bytes of memory that `forward` saves for backward, other than `parameters` themselves.

    16-bit copies of the parameters count: they are memory that a float32 run does not need.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    kept: dict[int, Tensor] = {}  # the tensors are held, so that no address is given out twice

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            kept.setdefault(address, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
