"""Anomaly detection checks every gradient and keeps a traceback of every op: it is for looking, not for training."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


class DebuggingLeftOn(Rule):
    """`torch.autograd.set_detect_anomaly(True)`."""

    code = "MP109"
    name = "debugging-left-on"
    severity = Severity.INFO
    title = "Anomaly detection is switched on."
    why = "It makes training 1.7 to 1.85 times slower, and with a GradScaler it stops at overflows that are normal."
    bad = """\
import torch

torch.autograd.set_detect_anomaly(True)
scaler = torch.amp.GradScaler("cuda")
"""
    good = """\
import torch

torch.autograd.set_detect_anomaly(False)
scaler = torch.amp.GradScaler("cuda")
"""
    fix_safety = FixSafety.SAFE
    sources = ("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call that switches it on in every run."""
        for call in view.calls("torch.autograd.set_detect_anomaly"):
            mode = view.argument(call, 0, "mode")
            if mode is not None and view.constant(mode) is True:
                fix = self.fix("Switch it off.", view.edit.replace(mode, "False"))
                yield self.finding(view, call, "Anomaly detection is on in every run.", fix=fix)
