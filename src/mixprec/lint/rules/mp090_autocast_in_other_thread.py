"""Autocast is on in the thread that entered it and in no other."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Const, Hit, Trace, held
from mixprec.records import Finding, Severity


class AutocastInOtherThread(Rule):
    """`pool.map(model, batches)` inside `with torch.autocast(...)`."""

    code = "MP090"
    name = "autocast-in-other-thread"
    severity = Severity.WARNING
    title = "A model runs in another thread than the one that entered autocast."
    why = "The state of autocast belongs to a thread, so the worker computes in float32: no speed, no memory is saved."
    bad = """\
from concurrent.futures import ThreadPoolExecutor

import torch

model = torch.nn.Linear(8, 8)
pool = ThreadPoolExecutor(2)
with torch.autocast("cuda", dtype=torch.float16):
    outputs = list(pool.map(model, torch.ones(2, 4, 8)))
"""
    good = """\
from concurrent.futures import ThreadPoolExecutor

import torch

model = torch.nn.Linear(8, 8)
pool = ThreadPoolExecutor(2)


def run(x):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x)


outputs = list(pool.map(run, torch.ones(2, 4, 8)))
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#working-with-multiple-gpus",
        "https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call that starts work in a thread."""
        for hit in held(view, _threads):
            yield self.finding(
                view, hit.node, hit.message, fix=self.fix("Enter autocast inside the function that runs there.")
            )


def _threads(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("thread"):
        if event.args[0] == Const(True):
            line = event.region.line
            yield Hit(event.node, f"The autocast region of line {line} is not on in the thread that this starts.")
