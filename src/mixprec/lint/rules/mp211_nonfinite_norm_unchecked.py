"""Without a scaler nothing stops a gradient that is not finite: clipping spreads it to every parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

CLIP = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")


class NonfiniteNormUnchecked(Rule):
    """`clip_grad_norm_(...)` in a bfloat16 loop, its result dropped, and a step right after."""

    code = "MP211"
    name = "nonfinite-norm-unchecked"
    severity = Severity.INFO
    title = "A bfloat16 loop clips by the norm and steps, without looking at the norm."
    why = "One NaN gradient makes the norm NaN, clipping makes every gradient NaN, and the step every weight."
    bad = """\
import torch


def train(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
    good = """\
import torch


def train(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",)
    words = ("clip_grad_norm_",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call, in a file whose regions are all bfloat16 and that has no scaler."""
        regions = list(view.calls(*AUTOCASTS))
        dtypes = {view.dtype(view.argument(call, 1, "dtype")) for call in regions}
        if dtypes != {"bfloat16"} or view.owners or any(True for _ in view.calls(*SCALERS)):
            return
        for call in view.calls(*CLIP):
            checked = view.argument(call, 3, "error_if_nonfinite") is not None
            if isinstance(view.parent(call), ast.Expr) and not checked:
                message = "Nothing looks at this norm; if it is NaN, every weight becomes NaN."
                fix = self.fix("Keep the norm and step only if it is finite, or pass error_if_nonfinite=True.")
                yield self.finding(view, call, message, fix=fix)
