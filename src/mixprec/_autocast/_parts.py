"""Some C++ functions hide listed ops behind a name that no single rule fits; here they follow their parts.

`F.pad` is another op for each mode, and what that op's rule is holds for the call. `F.pairwise_distance` is a
difference in the inputs' dtype and then a norm, so it is written out. Recurrent layers are one cuDNN op on a GPU, and
a CPU run that rehearses it follows that op's rule. Functions whose parts agree on one rule everywhere have rows in
the policy's tables instead. Left as they are, so that PyTorch's own casts hold inside them: recurrent layers and
cells under CPU's own list, `cov`, `corrcoef`, `linalg_pinv`, `linalg_matrix_power`, `trapezoid`,
`cumulative_trapezoid`, `sum_to_size`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mixprec._autocast._rules import Call, Opening, plain

__all__ = ["parts"]


def parts(calls: Mapping[str, Call]) -> Mapping[str, Call]:
    """Op -> how a call of it follows its parts, given what is done with calls of those that are intercepted."""
    recurrent = dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _Follows(calls.get("_cudnn_rnn")))
    return {"pad": _Pad(calls), "pairwise_distance": Opening(_pairwise_distance), **recurrent}


class _Follows:
    """What is done with calls of another op is done with this call."""

    def __init__(self, call: Call | None) -> None:
        self.call = call

    def __call__(self, place: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return (self.call or plain)(place, function, args, kwargs)


class _Pad:
    """What is done with the padding op that the mode stands for is done with the call of `F.pad`'s builtin."""

    def __init__(self, calls: Mapping[str, Call]) -> None:
        names = {"reflect": "reflection_pad", "replicate": "replication_pad"}
        self.calls = {f"{mode} {2 * n}": calls.get(f"{name}{n}d") for mode, name in names.items() for n in (1, 2, 3)}
        self.constant = calls.get("constant_pad_nd")

    def __call__(self, place: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
        widths = args[1] if len(args) > 1 else kwargs["pad"]
        call = self.constant if mode == "constant" else self.calls.get(f"{mode} {len(widths)}")
        return (call or plain)(place, function, args, kwargs)


def _pairwise_distance(
    x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    distance: torch.Tensor = torch.norm(x1 - x2 + eps, p, max(x1.dim(), x2.dim()) - 1, keepdim)
    return distance
