"""An abstract interpreter of the scaler protocol: which scale, unscale, clip, step and update come in which order.

`view.memo(trace)` walks a file once and gives what can be said for sure; the rules about order only put it into words.
"""

from __future__ import annotations

from mixprec.lint.protocol._conclude import Conclusion, Condition
from mixprec.lint.protocol._facts import Facts, facts, last_name
from mixprec.lint.protocol._ledger import Fault
from mixprec.lint.protocol._rule import OrderRule, Pair, call_statement, pair, receiver, same_block
from mixprec.lint.protocol._trace import Trace, trace

__all__ = [
    "Conclusion",
    "Condition",
    "Facts",
    "Fault",
    "OrderRule",
    "Pair",
    "Trace",
    "call_statement",
    "facts",
    "last_name",
    "pair",
    "receiver",
    "same_block",
    "trace",
]
