"""NumPy has no bfloat16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Hit, Trace, held, spoken
from mixprec.records import Edit, Finding, Severity


class Bf16ToNumpy(Rule):
    """`model(x).cpu().numpy()` on a bfloat16 result."""

    code = "MP172"
    name = "bf16-to-numpy"
    severity = Severity.ERROR
    title = "A bfloat16 tensor is handed to NumPy, which raises."
    why = 'NumPy has no bfloat16, so .numpy() raises "Got unsupported ScalarType BFloat16".'
    bad = """\
import torch

model = torch.nn.Linear(8, 8)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    scores = model(torch.ones(1, 8)).cpu().numpy()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    scores = model(torch.ones(1, 8)).cpu().float().numpy()
"""
    fix_safety = FixSafety.SAFE
    sources = ("https://github.com/pytorch/pytorch/issues/110285",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call."""
        for hit in held(view, _calls):
            fix = self.fix("Convert to float32 first: x.float().numpy().", *_edits(view, hit.node))
            yield self.finding(view, hit.node, hit.message, fix=fix)


def _calls(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("numpy", "asarray", "array"):
        tensor = event.tensor()
        if tensor is not None and tensor.low and "bfloat16" in (tensor.dtypes or ()):
            yield Hit(event.node, f"The tensor is {spoken(tensor)} here, and NumPy has no bfloat16.")


def _edits(view: FileView, node: ast.AST) -> Iterator[Edit]:
    """`.float()` put before `.numpy()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numpy":
        line, column = view.edit.span(node.func.value)[2:]
        yield Edit(line, column, line, column, ".float()")
