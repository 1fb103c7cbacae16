"""A piece of the masters goes through gradient, step and rounding while it is in the cache, so memory sees it once.

PyTorch's own kernels do the work, so every bit is theirs; what changes is that they are given a piece at a time, and
the float32 gradient that they want lies in a scratch that never leaves the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixprec._kernels._part import Part

__all__ = ["PIECE", "Pieces"]

PIECE = 1 << 17
"""Elements: 20 bytes each of gradient, its float32 copy, master, moments and weight, 2.5 MiB in all."""

_UNIT = 64
"""Pieces end at multiples of it, so that a kernel's vector loop and its tail get the elements that they always get."""


@dataclass
class _Piece:
    """Views of some elements of one part; `spans` are (place, begin, end)."""

    part: int
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    masters: list[Tensor] = field(default_factory=list)
    exp_avgs: list[Tensor] = field(default_factory=list)
    exp_avg_sqs: list[Tensor] = field(default_factory=list)


class Pieces:
    """A `MasterUpdate` by `torch._fused_adamw_`, `size` elements at a time.

    **Cost**: 28 bytes moved per parameter where `size` × 20 bytes fit in the cache; three calls per piece; 4 × `size`
    bytes of memory.
    """

    def __init__(self, size: int = PIECE) -> None:
        self.size = max(size // _UNIT, 1) * _UNIT
        self._scratch = torch.empty(0)
        self._cut: list[_Piece] = []
        self._seen: list[int] = []

    def __call__(self, parts: Sequence[Part], grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        """See `MasterUpdate`."""
        steps = [step for part in parts for step in part.steps]
        torch._foreach_add_(steps, 1)
        gradients = [[flat(gradient) for gradient in part.gradients] for part in parts]
        for piece in self._pieces(parts):
            part = parts[piece.part]
            whole = gradients[piece.part]
            torch._foreach_copy_(piece.scratch, [whole[place][begin:end] for place, begin, end in piece.spans])
            torch._fused_adamw_(
                piece.masters,
                piece.scratch,
                piece.exp_avgs,
                piece.exp_avg_sqs,
                [],
                [part.steps[place] for place, _, _ in piece.spans],
                lr=part.hyper.lr,
                beta1=part.hyper.beta1,
                beta2=part.hyper.beta2,
                weight_decay=part.hyper.weight_decay,
                eps=part.hyper.eps,
                amsgrad=False,
                maximize=False,
                grad_scale=grad_scale,
                found_inf=found_inf,
            )
            torch._foreach_copy_(piece.weights, piece.masters)
        if found_inf is not None:
            torch._foreach_sub_(steps, [found_inf] * len(steps))

    def _pieces(self, parts: Sequence[Part]) -> list[_Piece]:
        """The views, cut again only where a tensor is another one than last time."""
        seen = [t.data_ptr() for p in parts for each in (p.weights, p.masters, p.exp_avgs, p.exp_avg_sqs) for t in each]
        seen += [t.numel() for p in parts for t in p.weights] + [len(p.weights) for p in parts]
        if seen != self._seen:
            self._scratch = torch.empty(self.size, device=parts[0].masters[0].device)
            self._cut = [piece for index, part in enumerate(parts) for piece in self._cut_up(index, part)]
            self._seen = seen
        return self._cut

    def _cut_up(self, index: int, part: Part) -> Iterator[_Piece]:
        piece, used = _Piece(index), 0
        for place, tensors in enumerate(zip(part.weights, part.masters, part.exp_avgs, part.exp_avg_sqs, strict=True)):
            weight, master, exp_avg, exp_avg_sq = (flat(tensor) for tensor in tensors)
            begin = 0
            while begin < weight.numel():
                room = (self.size - used) // _UNIT * _UNIT
                if room == 0:
                    yield piece
                    piece, used, room = _Piece(index), 0, self.size
                end = min(weight.numel(), begin + room)
                piece.spans.append((place, begin, end))
                piece.scratch.append(self._scratch[used : used + end - begin])
                piece.weights.append(weight[begin:end])
                piece.masters.append(master[begin:end])
                piece.exp_avgs.append(exp_avg[begin:end])
                piece.exp_avg_sqs.append(exp_avg_sq[begin:end])
                used += end - begin
                begin = end
        if piece.spans:
            yield piece


def flat(tensor: Tensor) -> Tensor:
    """The elements of a tensor without gaps in one dimension, as they lie: a view. Cost: Python only."""
    tensor = tensor.detach()
    return tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
