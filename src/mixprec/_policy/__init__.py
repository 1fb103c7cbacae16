"""Which dtype an op runs in is data: op tables, module rules, named policies, and one function that decides.

Standard library only. See README.md beside this file for the reasons.
"""

from __future__ import annotations

from mixprec._policy.base import Base
from mixprec._policy.difference import difference, differs
from mixprec._policy.entry import Rule
from mixprec._policy.names import known_op, op_of
from mixprec._policy.policy import Policy
from mixprec._policy.resolve import Decision, Level, module_rule, resolve, resolve_at
from mixprec._policy.rule import CastRule
from mixprec._policy.selector import Kind, Place, Selector
from mixprec._policy.sharing import Sharing

__all__ = [
    "Base",
    "CastRule",
    "Decision",
    "Kind",
    "Level",
    "Place",
    "Policy",
    "Rule",
    "Selector",
    "Sharing",
    "difference",
    "differs",
    "known_op",
    "module_rule",
    "op_of",
    "resolve",
    "resolve_at",
]
