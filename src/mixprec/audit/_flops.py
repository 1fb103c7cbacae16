"""A product costs two FLOPs per multiplication; the formulas are PyTorch's own, and ours where it has none.

Source: https://github.com/pytorch/pytorch/blob/main/torch/utils/flop_counter.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from mixprec.audit._log import Product

__all__ = ["flops_of", "has_formula", "product_of"]


def flops_of(packet: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int:
    """FLOPs of one call; 0 for what is no product. `packet` is the op without its overload."""
    own = _OWN.get(_name(packet))
    if own is not None:
        return int(own(args))
    formula = flop_registry.get(_out_of_place(packet))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def has_formula(packet: Any) -> bool:
    """Whether the op counts as a product and must not be taken apart."""
    return _name(packet) in _OWN or _out_of_place(packet) in flop_registry


def product_of(packet: Any, args: Sequence[Any], out: Any) -> Product | None:
    """The sizes of the product; None for what is none, or has sizes of its own (recurrent layers)."""
    shape = _SHAPES.get(_name(packet))
    return None if shape is None else shape(args, out)


def _name(packet: Any) -> str:
    """The op's name, that of the out-of-place form for an in-place one."""
    name = str(packet).rpartition(".")[2]
    return name if name.startswith("_") else name.rstrip("_")


def _out_of_place(packet: Any) -> Any:
    name = str(packet).rpartition(".")[2]
    if name.startswith("_") or not name.endswith("_"):
        return packet
    return getattr(torch.ops.aten, name.rstrip("_"), packet)


# ── FLOPs that PyTorch does not count ───────────────────────────────────────────────────────────────────────────────


def _recurrent(args: Sequence[Any]) -> int:
    """One layer and direction of oneDNN: each of the steps multiplies with both weights."""
    steps = math.prod(args[0].shape[:2])
    return int(2 * steps * sum(w.numel() for w in args[1:3]))


def _recurrent_cudnn(args: Sequence[Any]) -> int:
    steps = math.prod(args[0].shape[:2])
    return int(2 * steps * sum(w.numel() for w in args[1] if w.dim() > 1))


def _attention(args: Sequence[Any]) -> int:
    """Scores and their product with the values."""
    query, key, value = args[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return int(2 * pairs * (query.shape[-1] + value.shape[-1]))


def _attention_backward(args: Sequence[Any]) -> int:
    """Scores again, and two products for each of the forward's: five in all."""
    query, key, value = args[1:4]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return int(2 * pairs * (3 * query.shape[-1] + 2 * value.shape[-1]))


def _vector(args: Sequence[Any]) -> int:
    return int(2 * args[0].numel())


_OWN: dict[str, Callable[[Sequence[Any]], int]] = {
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": lambda args: 2 * _recurrent(args),
    "_cudnn_rnn": _recurrent_cudnn,
    "_cudnn_rnn_backward": lambda args: 2 * _recurrent_cudnn(args),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_attention_math_for_mps": _attention,
    "mv": _vector,
    "dot": _vector,
    "addmv": lambda args: 2 * args[1].numel(),
}


# ── sizes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _matrices(first: Tensor, second: Tensor) -> Product:
    (m, k), n = first.shape[-2:], second.shape[-1]
    return Product(m, n, k, math.prod(first.shape[:-2]), (m, n, k))


def _convolution(args: Sequence[Any], out: Any) -> Product:
    """Input channels and output channels are what a convolution's kernel wants aligned."""
    return _lowered(out, args[1], bool(args[6]), int(args[8]))


def _convolution_backward(args: Sequence[Any], out: Any) -> Product:
    return _lowered(args[0], args[2], bool(args[7]), int(args[9]))


def _lowered(result: Tensor, weight: Tensor, transposed: bool, groups: int) -> Product:
    inner, outer = (weight.shape[1], weight.shape[0] // groups)
    if transposed:
        inner, outer = weight.shape[0] // groups, weight.shape[1]
    places = result.shape[0] * math.prod(result.shape[2:])
    return Product(places, outer, inner * math.prod(weight.shape[2:]), groups, (outer, inner))


def _attention_sizes(query: Tensor, key: Tensor) -> Product:
    """Lengths are data; what a layer can choose is the width of a head."""
    return Product(query.shape[-2], key.shape[-2], query.shape[-1], math.prod(query.shape[:-2]), (query.shape[-1],))


_SHAPES: dict[str, Callable[[Sequence[Any], Any], Product]] = {
    "mm": lambda args, out: _matrices(args[0], args[1]),
    "bmm": lambda args, out: _matrices(args[0], args[1]),
    "addmm": lambda args, out: _matrices(args[1], args[2]),
    "baddbmm": lambda args, out: _matrices(args[1], args[2]),
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": lambda args, out: _attention_sizes(args[0], args[1]),
    "_scaled_dot_product_efficient_attention": lambda args, out: _attention_sizes(args[0], args[1]),
    "_scaled_dot_product_cudnn_attention": lambda args, out: _attention_sizes(args[0], args[1]),
    "_scaled_dot_product_flash_attention_for_cpu": lambda args, out: _attention_sizes(args[0], args[1]),
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda args, out: _attention_sizes(args[1], args[2]),
    "_scaled_dot_product_flash_attention_backward": lambda args, out: _attention_sizes(args[1], args[2]),
    "_scaled_dot_product_efficient_attention_backward": lambda args, out: _attention_sizes(args[1], args[2]),
}
