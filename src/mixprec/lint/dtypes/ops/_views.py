"""Views and copies have the values of the tensor that they are made from."""

from __future__ import annotations

from dataclasses import replace

from mixprec.lint.dtypes._bounds import Bounds
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._values import UNKNOWN, Items, Value
from mixprec.lint.dtypes.ops._result import Handler

__all__ = ["VIEWS"]

_SAME_RANK = """
    alias alpha_dropout clone contiguous cpu cuda detach detach_ dropout dropout1d dropout2d dropout3d feature_dropout
    hook mps npu pin_memory register_hook requires_grad_ retain_grad to_dense xpu
"""
_WITH_DIMENSIONS = """
    constant_pad_nd expand_as flatten pad pixel_shuffle pixel_unshuffle ravel rearrange reflection_pad1d
    reflection_pad2d repeat_interleave tril triu unflatten unsqueeze
"""
_ANY_RANK = """
    diagonal expand flip gather index_select mT masked_select movedim narrow permute repeat reshape reshape_as roll
    rot90 select squeeze swapaxes swapdims t take take_along_dim tile transpose unfold view view_as
"""
_KEEPS_RANK = frozenset(_SAME_RANK.split())
_HAS_DIMENSIONS = frozenset(_WITH_DIMENSIONS.split())
_WITH_ZEROS = frozenset({"constant_pad_nd", "pad", "tril", "triu"})
_CHUNKS = frozenset({"chunk", "unsafe_chunk", "tensor_split"})
_PARTS = frozenset({"hsplit", "split", "unbind", "vsplit"})
_MOST_PARTS = 8


def _view(call: Call) -> Value:
    tensor = call.tensor()
    if tensor is None:
        return UNKNOWN
    bounds = tensor.bounds.hull(Bounds(0.0, 0.0)) if call.name in _WITH_ZEROS else tensor.bounds
    if call.name in _KEEPS_RANK:
        return tensor
    return replace(tensor, bounds=bounds, rank0=False if call.name in _HAS_DIMENSIONS else None, shape=None)


def _parts(call: Call) -> Value:
    tensor = call.tensor()
    if tensor is None:
        return Items(None)
    part = replace(tensor, rank0=None if call.name == "unbind" else tensor.rank0, shape=None)
    count = call.number(1, "chunks") if call.name in _CHUNKS else None
    if count is not None and 0 < count <= _MOST_PARTS:
        return Items((part,) * int(count))
    return Items(None, part)


VIEWS: dict[str, Handler] = {
    **dict.fromkeys((*_KEEPS_RANK, *_HAS_DIMENSIONS, *_ANY_RANK.split()), _view),
    **dict.fromkeys(_CHUNKS | _PARTS, _parts),
}
"""Views, copies, and parts."""
