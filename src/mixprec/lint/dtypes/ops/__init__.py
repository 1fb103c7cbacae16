"""What an op makes of its tensors: the dtype by autocast's lists and by promotion, the bounds by arithmetic.

Every file beside this one brings a table from the name that Python uses to what the op does. A name that stands in no
table gives UNKNOWN, and nothing is said about what comes after it.
"""

from __future__ import annotations

from dataclasses import replace

from mixprec._policy import CastRule
from mixprec.lint.dtypes._call import Call
from mixprec.lint.dtypes._region import rule_of
from mixprec.lint.dtypes._values import UNKNOWN, Items, Tensor, Value
from mixprec.lint.dtypes.ops._arithmetic import ARITHMETIC
from mixprec.lint.dtypes.ops._casts import CASTS
from mixprec.lint.dtypes.ops._factories import FACTORIES
from mixprec.lint.dtypes.ops._losses import LOSSES
from mixprec.lint.dtypes.ops._moves import MOVES
from mixprec.lint.dtypes.ops._pointwise import POINTWISE
from mixprec.lint.dtypes.ops._products import PRODUCTS
from mixprec.lint.dtypes.ops._reductions import REDUCTIONS
from mixprec.lint.dtypes.ops._result import Handler
from mixprec.lint.dtypes.ops._views import VIEWS

__all__ = ["CASTS", "FACTORIES", "LOSSES", "OPS", "operate"]

OPS: dict[str, Handler] = {
    **VIEWS,
    **POINTWISE,
    **REDUCTIONS,
    **PRODUCTS,
    **LOSSES,
    **MOVES,
    **ARITHMETIC,
    **CASTS,
    **FACTORIES,
}
"""Name -> what it does."""


def operate(call: Call) -> Value:
    """The result of a call of a known op; UNKNOWN of any other."""
    handler = OPS.get(call.name)
    return UNKNOWN if handler is None else _explained(call, handler(call))


def _explained(call: Call, value: Value) -> Value:
    """A tensor of 16 bits says where it got them."""
    if isinstance(value, Items) and value.items is not None:
        return replace(value, items=tuple(_explained(call, item) for item in value.items))
    if not isinstance(value, Tensor) or not value.low or value.why:
        return value
    if call.region.enabled and call.region.line and rule_of(call.name, call.region.device) is CastRule.LOW:
        return replace(value, why=f"the autocast region of line {call.region.line}")
    return replace(value, why=next((t.why for t in call.operands() if t is not None and t.why), ""))
