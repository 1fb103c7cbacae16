"""Each kind of misuse is a guard, and each can be switched off by itself."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from mixprec.errors import InvalidValueError


class Guard(str, enum.Enum):
    """What a scaler watches for. All but `BROKEN_AFTER_UNSCALE` are on by default and cost no kernel and no sync."""

    UNSCALED_BACKWARD = "unscaled_backward"
    """An error where gradients are unscaled that no `scale()` since the last update can have produced (MP004)."""

    SCALED_STEP = "scaled_step"
    """An error where `optimizer.step()` is called directly on gradients that still carry the scale (MP003)."""

    CLIP_BEFORE_UNSCALE = "clip_before_unscale"
    """A warning where scaled gradients are clipped: changed in place, to the same norm or maximum twice (MP002).

    It looks at the gradients, with a sync, only when they were changed in place, and at most 4 times per optimizer. Who
    reads the scale meanwhile may be clipping at a multiple of it, and is left alone.
    """

    MISSING_ZERO_GRAD = "missing_zero_grad"
    """A warning where scaled gradients are added to those that an earlier step has unscaled already (MP146)."""

    SHARED_PARAMETER = "shared_parameter"
    """An error where a gradient would be unscaled twice because two optimizers own its parameter (MP028)."""

    SCALE_CHANGED = "scale_changed"
    """A warning where `update` ran between a backward pass and the step that uses its gradients (MP008)."""

    BROKEN_AFTER_UNSCALE = "broken_after_unscale"
    """Skips a step whose gradients were finite at `unscale_` and are not any more. Off by default, as torch's scaler
    does not look again either; costs a second read of the gradients."""


DEFAULT_GUARDS = frozenset(Guard) - {Guard.BROKEN_AFTER_UNSCALE}


def guards_from(guards: Iterable[Guard | str]) -> frozenset[Guard]:
    """`guards` as a set of guards; their values are accepted for names. Raises: InvalidValueError."""
    if isinstance(guards, str):
        guards = (guards,)
    known = {guard.value for guard in Guard}
    for guard in guards:
        if guard not in known:
            raise InvalidValueError("guards", guard, "a set of Guard: " + ", ".join(sorted(known)))
    return frozenset(Guard(guard) for guard in guards)
