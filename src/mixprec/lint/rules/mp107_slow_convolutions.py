"""With cudnn.benchmark off convolutions run with the first algorithm that fits, often not one for tensor cores."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


class SlowConvolutions(Rule):
    """`torch.backends.cudnn.benchmark = False` in a script that trains convolutions with AMP."""

    code = "MP107"
    name = "slow-convolutions"
    severity = Severity.INFO
    title = "cudnn.benchmark is switched off in a script that runs convolutions in autocast."
    why = "cuDNN then does not try which algorithm is fastest; the gain of 16 bits can be lost in a slow one."
    bad = """\
import torch

torch.backends.cudnn.benchmark = False
model = torch.nn.Conv2d(3, 8, 3)
with torch.autocast("cuda", dtype=torch.float16):
    y = model(torch.ones(1, 3, 8, 8))
"""
    good = """\
import torch

torch.backends.cudnn.benchmark = True
model = torch.nn.Conv2d(3, 8, 3)
with torch.autocast("cuda", dtype=torch.float16):
    y = model(torch.ones(1, 3, 8, 8))
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#enable-cudnn-auto-tuner",)
    words = ("cudnn",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per assignment, unless determinism is asked for."""
        if "Conv" not in view.source or "deterministic" in view.source or not any(True for _ in view.calls(*AUTOCASTS)):
            return
        for node in view.nodes(ast.Assign):
            names = [view.dotted(target) for target in node.targets]
            if "torch.backends.cudnn.benchmark" in names and view.constant(node.value) is False:
                message = "Convolutions run with an untested algorithm."
                yield self.finding(view, node, message, fix=self.fix("Set it to True where shapes do not change."))
