"""One line of a policy is about an op, anywhere or inside modules, or about whole modules; no other can exist."""

from __future__ import annotations

from dataclasses import dataclass

from mixprec._policy.names import known_op, takes_dtype
from mixprec._policy.rule import MODULE_RULES, CastRule, as_rule
from mixprec._policy.selector import Selector
from mixprec._policy.spellings import TAKES_DTYPE
from mixprec.errors import InvalidValueError

__all__ = ["Rule"]


@dataclass(frozen=True)
class Rule:
    """`rule` for `op` inside the modules `where`. `op` None: for every op there; `where` None: for the op anywhere.

    `op` may come in any spelling and `rule` as its name. `reason` is one line of text without `#`.
    Raises `UnknownNameError` and `InvalidValueError`.
    """

    op: str | None
    where: Selector | None
    rule: CastRule
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", as_rule(self.rule))
        if self.op is not None:
            object.__setattr__(self, "op", known_op(self.op))
        _refuse_rule(self)
        if self.reason != " ".join(self.reason.split()) or "#" in self.reason:
            raise InvalidValueError("reason", self.reason, "one line, single spaces, without '#'")

    @property
    def subject(self) -> tuple[str | None, Selector | None]:
        """What the rule speaks of; a later rule with the same subject replaces an earlier one."""
        return (self.op, self.where)


def _refuse_rule(entry: Rule) -> None:
    if entry.op is None and entry.where is None:
        raise InvalidValueError("rule", entry.rule.value, "a rule for an op, a module, or both", "Use '**' for all.")
    if entry.op is None and entry.rule not in MODULE_RULES:
        raise InvalidValueError(
            "rule of a module",
            entry.rule.value,
            " or ".join(repr(r.value) for r in MODULE_RULES),
            f"{entry.rule.value!r} speaks of one op: with_op(OP, {entry.rule.value!r}, module=...).",
        )
    if entry.op is not None and entry.rule is CastRule.FP32_OUT and not takes_dtype(entry.op):
        raise InvalidValueError(
            f"rule of {entry.op}",
            entry.rule.value,
            f"'fp32' for this op; 'fp32_out' only for ops that take dtype=: {', '.join(sorted(TAKES_DTYPE))}",
        )
