"""A piece of the masters goes through gradient, step and rounding while it is in the cache, so memory sees it once.

PyTorch's own kernels do the work, so every bit is theirs; what changes is that they are given a piece at a time, and
the float32 gradient that they want lies in a scratch that never leaves the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mixprec._kernels._part import Held, Part

__all__ = ["PIECE", "Pieces"]

PIECE = 1 << 17
"""Elements: 20 bytes each of gradient, its float32 copy, master, moments and weight, 2.5 MiB in all."""

_UNIT = 64
"""Pieces end at multiples of it, so that a kernel's vector loop and its tail get the elements that they always get."""


@dataclass(frozen=True)
class _Span:
    """Elements `begin` to `end` of the tensor at `place`; all of it, as it is, where `end` is None."""

    place: int
    begin: int = 0
    end: int | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """These elements of a tensor that lies as the others at this place do: itself or a view."""
        return tensor if self.end is None else _flat(tensor)[self.begin : self.end]


@dataclass
class _Piece:
    """Some elements of the part at `part`."""

    part: int
    spans: list[_Span] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    masters: list[Tensor] = field(default_factory=list)
    exp_avgs: list[Tensor] = field(default_factory=list)
    exp_avg_sqs: list[Tensor] = field(default_factory=list)
    steps: list[Tensor] = field(default_factory=list)


class Pieces:
    """A `MasterUpdate` by `torch._fused_adamw_`, about `size` elements at a time.

    **Cost**: 28 bytes moved per parameter where `size` × 20 bytes fit in the cache; three calls per piece, and about
    1 µs of Python per piece or tensor; 4 × `size` bytes of memory.
    """

    def __init__(self, size: int = PIECE) -> None:
        self.size = max(size // _UNIT, 1) * _UNIT
        self._scratch = torch.empty(0)
        self._cut: list[_Piece] = []
        self._held: list[Held] = []

    def __call__(self, parts: Sequence[Part], grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        """See `MasterUpdate`."""
        steps = [step for part in parts for step in part.held.steps]
        torch._foreach_add_(steps, 1)
        for piece in self._pieces([part.held for part in parts]):
            hyper, gradients = parts[piece.part].hyper, parts[piece.part].gradients
            torch._foreach_copy_(piece.scratch, [span.of(gradients[span.place]) for span in piece.spans])
            torch._fused_adamw_(
                piece.masters,
                piece.scratch,
                piece.exp_avgs,
                piece.exp_avg_sqs,
                [],
                piece.steps,
                lr=hyper.lr,
                beta1=hyper.beta1,
                beta2=hyper.beta2,
                weight_decay=hyper.weight_decay,
                eps=hyper.eps,
                amsgrad=False,
                maximize=False,
                grad_scale=grad_scale,
                found_inf=found_inf,
            )
            torch._foreach_copy_(piece.weights, piece.masters)
        if found_inf is not None:
            torch._foreach_sub_(steps, [found_inf] * len(steps))

    def _pieces(self, held: list[Held]) -> list[_Piece]:
        """The views, cut again only for other tensors than last time."""
        if len(held) != len(self._held) or any(a is not b for a, b in zip(held, self._held, strict=True)):
            self._scratch = torch.empty(self.size, device=held[0].masters[0].device)
            self._cut = [piece for index, each in enumerate(held) for piece in self._cut_up(index, each)]
            self._held = held
        return self._cut

    def _cut_up(self, index: int, held: Held) -> Iterator[_Piece]:
        piece, used = _Piece(index), 0
        for place, weight in enumerate(held.weights):
            begin = 0
            while begin < weight.numel():
                room = (self.size - used) // _UNIT * _UNIT
                if room == 0:
                    yield piece
                    piece, used, room = _Piece(index), 0, self.size
                end = min(weight.numel(), begin + room)
                whole = end - begin == weight.numel() and weight.is_contiguous()
                scratch = self._scratch[used : used + end - begin]
                piece.scratch.append(scratch.view(weight.shape) if whole else scratch)
                _add(piece, held, _Span(place) if whole else _Span(place, begin, end))
                used += end - begin
                begin = end
        if piece.spans:
            yield piece


def _add(piece: _Piece, held: Held, span: _Span) -> None:
    piece.spans.append(span)
    piece.weights.append(span.of(held.weights[span.place]))
    piece.masters.append(span.of(held.masters[span.place]))
    piece.exp_avgs.append(span.of(held.exp_avgs[span.place]))
    piece.exp_avg_sqs.append(span.of(held.exp_avg_sqs[span.place]))
    piece.steps.append(held.steps[span.place])


def _flat(tensor: Tensor) -> Tensor:
    """The elements of a tensor without gaps in one dimension, as they lie: a view."""
    return tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))
