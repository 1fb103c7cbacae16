"""A gradient scaler starts, grows and backs off by numbers that have a meaning; some values have none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from mixprec.lint._names import SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


@dataclass(frozen=True)
class Check:
    """`argument` must not satisfy `wrong`; what is only unusual is worth knowing."""

    argument: str
    wrong: Callable[[float], bool]
    says: str
    severity: Severity = Severity.WARNING


CHECKS = (
    Check("init_scale", lambda v: v <= 0, "a scale must be above 0: gradients become 0 or change their sign"),
    Check("init_scale", lambda v: v > 2.0**24, "a scale above 2**24 overflows at once, and steps are skipped"),
    Check("growth_factor", lambda v: v <= 1, "the scale cannot grow by a factor of 1 or less, and torch raises"),
    Check("backoff_factor", lambda v: v >= 1, "the scale cannot shrink by a factor of 1 or more, and torch raises"),
    Check("backoff_factor", lambda v: v <= 0, "the first overflow makes the scale 0 or negative"),
    Check("growth_interval", lambda v: v <= 0, "the scale never grows"),
    Check("growth_interval", lambda v: 0 < v <= 2, "the scale grows every step or two, and runs away or overflows"),
    Check("growth_interval", lambda v: 2 < v < 10, "every few steps one is lost to a larger scale", Severity.INFO),
)
ORDER = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


class ScalerArguments(Rule):
    """`GradScaler(growth_interval=1)`, `GradScaler(init_scale=0)`."""

    code = "MP200"
    name = "scaler-arguments"
    severity = Severity.WARNING
    title = "A gradient scaler is given numbers that make no sense."
    why = "The defaults (start at 65536, double after 2000 clean steps, halve on overflow) suit almost every training."
    bad = """\
import torch

scaler = torch.amp.GradScaler("cuda", growth_interval=1)
"""
    good = """\
import torch

scaler = torch.amp.GradScaler("cuda", growth_interval=2000)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per argument."""
        for call in view.calls(*SCALERS):
            for check in CHECKS:
                node = _argument(view, call, check.argument)
                value = view.constant(node)
                if node is not None and type(value) in (int, float) and check.wrong(value):
                    message = f"{check.argument}={value:g}: {check.says}."
                    fix = self.fix("Leave the argument out.")
                    severity = Severity.INFO if _is_test(view.path) else check.severity
                    yield self.finding(view, node, message, fix=fix, severity=severity)


def _argument(view: FileView, call: ast.Call, name: str) -> ast.expr | None:
    """The argument of that name; the place differs with the class, and ShardedGradScaler swaps two of them."""
    dotted = view.dotted(call.func) or ""
    if "Sharded" in dotted:
        return view.argument(call, None, name)
    first = 0 if ".cuda.amp" in dotted or ".cpu.amp" in dotted else 1
    return view.argument(call, first + ORDER.index(name), name)


def _is_test(path: str) -> bool:
    """Whether a file is a test, in which a scale that grows at once is wanted."""
    return PurePath(path).name.startswith("test_")
