"""A float32 copy of the logits is often the largest tensor of a language model's training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import Event, Hit, Trace, held
from mixprec.records import Finding, Severity


class Fp32Logits(Rule):
    """`F.cross_entropy(logits.float().view(-1, vocab), labels)` inside autocast."""

    code = "MP122"
    name = "fp32-logits"
    severity = Severity.INFO
    title = "Logits are copied to float32 for a loss that autocast runs in float32 anyway."
    why = "The copy has the size of batch x tokens x vocabulary, twice the 16-bit logits, and lives until backward."
    bad = """\
import torch
import torch.nn.functional as F


def loss(hidden, weight, labels):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = hidden @ weight
        return F.cross_entropy(logits.float(), labels)
"""
    good = """\
import torch
import torch.nn.functional as F


def loss(hidden, weight, labels):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = hidden @ weight
        return F.cross_entropy(logits, labels)
"""
    fix_safety = FixSafety.NONE
    sources = ("https://github.com/huggingface/trl/issues/1980",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per conversion of something called logits, inside a region."""
        for hit in held(view, lambda trace: _copies(trace, view)):
            advice = "Leave .float() out, or use a chunked or fused cross entropy."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _copies(trace: Trace, view: FileView) -> Iterator[Hit]:
    for event in trace.of("float", "to"):
        tensor, result = event.tensor(), event.out
        copies = tensor is not None and result is not None and tensor.low and result.only("float32")
        if copies and event.region.enabled and _is_logits(event, view) and _feeds_loss(event.node, view):
            yield Hit(event.node, "This copies the logits to float32; the loss would convert them by itself.")


def _is_logits(event: Event, view: FileView) -> bool:
    node = event.node
    if view.parent(node) is None:  # it stands in another file
        return False
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "logits" in view.text(node.func.value)
    )


def _feeds_loss(node: ast.AST, view: FileView) -> bool:
    """Whether the copy is an argument of cross_entropy, in the same statement."""
    for ancestor in view.ancestors(node):
        if isinstance(ancestor, ast.Call):
            name = ancestor.func.attr if isinstance(ancestor.func, ast.Attribute) else getattr(ancestor.func, "id", "")
            if "cross_entropy" in name or name in ("criterion", "loss_fn", "loss_fct"):
                return True
        if isinstance(ancestor, ast.stmt):
            return False
    return False
