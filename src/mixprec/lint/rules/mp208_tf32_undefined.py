"""A float32 baseline may already run in TF32: a comparison has to say which."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

CLOCKS = ("time.time", "time.perf_counter", "timeit.default_timer", "torch.cuda.Event", "torch.utils.benchmark.Timer")


class Tf32Undefined(Rule):
    """A script that times float32 against autocast on CUDA and sets no float32 matmul precision."""

    code = "MP208"
    name = "tf32-undefined"
    severity = Severity.INFO
    title = "Autocast is timed against float32, and whether float32 means TF32 is left open."
    why = "TF32 runs on tensor cores too, so the gain differs by a factor of two with a flag that nobody set."
    bad = """\
import time

import torch

model = torch.nn.Linear(8, 8).to("cuda")
for use_amp in (False, True):
    start = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
        model(torch.ones(1, 8, device="cuda"))
    print(use_amp, time.perf_counter() - start)
"""
    good = """\
import time

import torch

torch.set_float32_matmul_precision("highest")
model = torch.nn.Linear(8, 8).to("cuda")
for use_amp in (False, True):
    start = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.float16, enabled=use_amp):
        model(torch.ones(1, 8, device="cuda"))
    print(use_amp, time.perf_counter() - start)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",)
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per loop over both settings."""
        if "cuda" not in view.source or any(word in view.source for word in ("tf32", "matmul_precision")):
            return
        if not any(True for _ in view.calls(*AUTOCASTS)) or not any(True for _ in view.calls(*CLOCKS)):
            return
        for loop in view.nodes(ast.For):
            if isinstance(loop.iter, (ast.Tuple, ast.List)):
                values = [view.constant(item) for item in loop.iter.elts]
                if values in ([False, True], [True, False]):
                    message = "The float32 run of this comparison may use TF32."
                    fix = self.fix('Call torch.set_float32_matmul_precision("highest") or ("high") first.')
                    yield self.finding(view, loop.iter, message, fix=fix)
