"""The empty state of a scaler that was off goes into one that is on."""

from __future__ import annotations

from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, receiver
from mixprec.records import Finding, Severity


class EmptyStateLoaded(OrderRule):
    """`scaler.load_state_dict(state)` with the state of `GradScaler(enabled=False)`."""

    code = "MP017"
    name = "empty-state-loaded"
    severity = Severity.ERROR
    title = "A scaler loads the state of a scaler that was disabled."
    why = (
        "A scaler that is off has an empty state, and one that is on refuses it: load_state_dict raises. A run that "
        "goes on with mixed precision after one without has to start with a fresh scaler."
    )
    bad = """\
import torch

old = torch.amp.GradScaler("cuda", enabled=False)
state = old.state_dict()
scaler = torch.amp.GradScaler("cuda")
scaler.load_state_dict(state)
"""
    good = """\
import torch

old = torch.amp.GradScaler("cuda", enabled=False)
state = old.state_dict()
scaler = torch.amp.GradScaler("cuda")
if state:
    scaler.load_state_dict(state)
"""
    sources = ("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",)
    kinds = ("empty-state",)

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """The place is the call that loads."""
        call = conclusion.fault.anchor
        name = receiver(view, call)
        text = f"{name} is enabled and loads the empty state of a disabled scaler{conclusion.when}, which raises."
        return self.finding(view, call, text, fix=self.fix("Load a scaler's state only where it is not empty."))
