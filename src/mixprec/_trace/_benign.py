"""Infinities that nobody should be accused of, as rows: made on purpose, by-products, and the scaler's own work.

Sources: TensorFlow's `SAFE_OPS` and `IGNORE_OP_OUTPUTS`
(https://github.com/tensorflow/tensorflow/blob/v2.19.0/tensorflow/python/tpu/tensor_tracer.py), and what torch's own
kernels return beside their result.
"""

from __future__ import annotations

from mixprec.records import OpRecord

__all__ = ["CONSUMERS", "QUESTIONS", "auxiliary_outputs", "leaves_out", "on_purpose", "packet", "written_elsewhere"]

CONSTANTS = frozenset(
    {"full", "full_like", "new_full", "scalar_tensor", "fill", "fill_", "masked_fill", "masked_fill_"}
    | {"constant_pad_nd", "index_fill", "index_fill_", "index_put", "where", "clamp", "nan_to_num"}
)
"""Ops that put a constant into a tensor: an Inf there was asked for if the constant is one. A finite constant that the
format rounds to Inf (−1e9 in float16) was not."""

QUESTIONS = frozenset({"isfinite", "isinf", "isnan", "isposinf", "isneginf", "allclose", "equal", "__repr__"})
"""Torch functions that only ask about numbers, whatever ops they are made of."""

CONSUMERS = frozenset(
    {"_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "_masked_softmax", "softmax"}
    | {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"}
    | {"_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"}
)
"""Ops that take −Inf for "leave this out": only where all of a row is left out do they give NaN, and they are where."""

SELECTORS = frozenset({"argmax", "topk", "sort", "argsort", "msort", "multinomial", "kthvalue"})
"""Ops that choose among the elements, the largest ones: what is −Inf is chosen last."""

UNINITIALISED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "resize_"})
"""Ops that return memory as it was."""

SCALER = frozenset({"_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"})
"""The scaler's own work: that it meets Inf is what it is for."""

BY_PRODUCTS: dict[str, int] = {
    "_scaled_dot_product_flash_attention_for_cpu": 1,
    "_scaled_dot_product_flash_attention": 1,
    "_scaled_dot_product_efficient_attention": 1,
    "_scaled_dot_product_cudnn_attention": 1,
    "_flash_attention_forward": 1,
    "_efficient_attention_forward": 1,
    "native_batch_norm": 1,
    "cudnn_batch_norm": 1,
}
"""How many outputs are the result; the rest are kept for backward, with −Inf where a row was fully masked
(logsumexp), or reserved memory."""


def packet(record: OpRecord) -> str:
    """The op's name without namespace and overload: `mul` of `aten.mul.Tensor`."""
    parts = record.op.split(".")
    return parts[1] if len(parts) > 1 else record.op


def leaves_out(record: OpRecord) -> bool:
    """Whether the op only chooses among numbers, of which no bad one is anything but −Inf: "not this one"."""
    bad = [stats for stats in record.inputs if not stats.finite]
    return packet(record) in SELECTORS and all(not stats.nans and stats.infs == stats.negative_infs for stats in bad)


def on_purpose(record: OpRecord) -> bool:
    """Whether the op's infinities were asked for, by-products or the scaler's."""
    asked_for = packet(record) in CONSTANTS and any(value in ("inf", "-inf") for _, value in record.scalars)
    return asked_for or written_elsewhere(record) or auxiliary_outputs(record)


def written_elsewhere(record: OpRecord) -> bool:
    """Whether what the op returns is not its own doing."""
    return packet(record) in UNINITIALISED or packet(record) in SCALER


def auxiliary_outputs(record: OpRecord) -> bool:
    """Whether only outputs beside the result hold Inf or NaN."""
    results = BY_PRODUCTS.get(packet(record))
    return results is not None and all(one.finite for one in record.outputs[:results])
