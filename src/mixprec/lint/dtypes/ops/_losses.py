"""Losses reduce to one number unless they are told not to."""

from __future__ import annotations

from mixprec.lint.dtypes._bounds import ANY, NOT_NEGATIVE
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._region import result
from mixprec.lint.dtypes._values import UNKNOWN, Const, Tensor, Value
from mixprec.lint.dtypes.ops._result import Handler

__all__ = ["LOSSES"]

_NAMES = """
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss
    gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss
"""
_OF_CLASSES = frozenset({"cross_entropy", "nll_loss", "ctc_loss"})


def _loss(call: Call) -> Value:
    tensor = call.tensor()
    operands = (tensor,) if call.name in _OF_CLASSES else (tensor, call.tensor(1, "target"))
    dtypes = result(call.name, operands, call.region)
    if dtypes is None and tensor is None:
        return UNKNOWN
    reduction = call.keywords.get("reduction")
    reduced = reduction is None or (isinstance(reduction, Const) and reduction.value != "none")
    return Tensor(dtypes, ANY if call.name == "kl_div" else NOT_NEGATIVE, True if reduced else None)


LOSSES: dict[str, Handler] = dict.fromkeys(_NAMES.split(), _loss)
"""The losses of torch.nn.functional."""
