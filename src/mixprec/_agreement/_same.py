"""Ranks that scale differently train different models without an error; this says so, or makes them alike again."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from mixprec._agreement._agreement import Agreement
from mixprec.errors import DisagreementError


class OnDisagreement(str, enum.Enum):
    """What to do when ranks hold different loss scales."""

    RAISE = "raise"
    """Raise a DisagreementError that lists every rank's scale."""

    REPAIR = "repair"
    """Give every rank the state of the rank whose scale is lowest, which is the one that saw the most overflows."""


def settle(agreement: Agreement, state: Tensor, on_disagreement: OnDisagreement) -> tuple[float, ...] | None:
    """The state that all ranks are to take, or None if they hold the same already.

    `state` is a 1-dim float64 vector on every rank; its first element is the loss scale.

    Raises: DisagreementError where the states differ and nothing is to be repaired.

    **Cost**: one all-gather of `state`, one host sync.
    """
    if agreement.size == 1:
        return None
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    own = torch.cat((state.new_tensor([float(rank)]), state))
    rows = sorted(tuple(row.tolist()) for row in agreement.gather(own))
    states = [row[1:] for row in rows]
    if len(set(states)) == 1:
        return None
    if on_disagreement is OnDisagreement.RAISE:
        raise DisagreementError("the loss scale (or its counters)", tuple(s[0] for s in states), _ADVICE)
    return min(states)


_ADVICE = (
    "Ranks that scale differently train different models. Find out why one rank skipped a step alone: give the scaler "
    "the process_group of the ranks that share parameters. To go on from the lowest scale, pass OnDisagreement.REPAIR."
)
