"""Two C++ functions hide listed ops behind a name that no single rule fits; here they follow their parts.

`F.pad` is another op for each mode, and what that op's rule is holds for the call. `F.pairwise_distance` is a
difference in the inputs' dtype and then a norm, so it is written out. Functions whose parts agree on one rule have
rows in the policy's tables instead. `cov`, `corrcoef`, `linalg_pinv`, `linalg_matrix_power`, `trapezoid`,
`cumulative_trapezoid` and `sum_to_size` are left as they are: PyTorch's own casts hold inside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from mixprec._autocast._rules import Call, Opening, keep

__all__ = ["PARTS"]


class _Pad:
    """The rule of the padding op that the mode stands for, applied to the call of `F.pad`'s builtin."""

    _parts = MappingProxyType({"reflect": "reflection_pad", "replicate": "replication_pad"})

    def __call__(self, place: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
        widths = args[1] if len(args) > 1 else kwargs["pad"]
        call = place.stay.table.get(self._part(mode, widths))
        if call is not None:
            return call(place, function, args, kwargs)
        return keep(place, function, args, kwargs) if place.whole else function(*args, **kwargs)

    def _part(self, mode: str, widths: Any) -> Any:
        if mode not in self._parts:
            return torch.constant_pad_nd
        return getattr(torch._C._nn, f"{self._parts[mode]}{len(widths) // 2}d", None)


def _pairwise_distance(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    distance: torch.Tensor = torch._VF.norm(x1 - x2 + eps, p, max(x1.dim(), x2.dim()) - 1, keepdim)  # type: ignore[attr-defined]  # made by C++
    return distance


PARTS: Mapping[str, Call] = MappingProxyType({"pad": _Pad(), "pairwise_distance": Opening(_pairwise_distance)})
"""Op -> how a call of it follows its parts, unless the policy has a rule for the op itself."""
