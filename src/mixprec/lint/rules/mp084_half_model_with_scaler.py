"""A GradScaler refuses float16 gradients, and gradients are float16 where the parameters are."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import (
    Const,
    Hit,
    Instance,
    Items,
    Optimizer,
    Scaler,
    Tag,
    Tensor,
    Trace,
    each_parameter,
    held,
)
from mixprec.lint.rules.mp061_updates_round_away import freezes
from mixprec.records import Finding, Severity


class HalfModelWithScaler(Rule):
    """`model.half()`, trained with a GradScaler."""

    code = "MP084"
    name = "half-model-with-scaler"
    severity = Severity.ERROR
    title = "A GradScaler steps an optimizer whose parameters are float16."
    why = (
        'unscale_ raises "Attempting to unscale FP16 gradients."; with a fused optimizer nothing raises and the '
        "float16 parameters are updated without float32 copies. Autocast wants float32 parameters."
    )
    bad = """\
import torch


def train(layer, loss_fn, loader):
    model = layer.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    good = """\
import torch


def train(layer, loss_fn, loader):
    model = layer.float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/huggingface/peft/issues/341",
        "https://github.com/huggingface/transformers/issues/23165",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per place in which the weights become float16."""
        if freezes(view):
            return
        advice = "Keep the parameters in float32 (remove the conversion) and let autocast run the forward in float16."
        strict = any(node.attr in ("requires_grad", "requires_grad_") for node in view.nodes(ast.Attribute))
        steps = held(view, lambda trace: _steps(trace, parts=not strict))
        for hit in (*steps, *held(view, lambda trace: _trainers(trace, view))):
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _steps(trace: Trace, parts: bool) -> Iterator[Hit]:
    """Steps of float16 parameters; with `parts`, of those among others too, as none of them is frozen."""
    for event in trace.of("scaler.unscale_", "scaler.step"):
        scaler, optimizer, trained = event.value(), event.value(1), event.args[-1]
        if not isinstance(scaler, Scaler) or scaler.enabled is False or scaler.sharded:
            continue
        if isinstance(trained, Tensor) and trained.half and Tag.PARAMETER in trained.tags:
            yield Hit(event.node, _said(optimizer), trained.origin)
            continue
        part = _half_part(optimizer) if parts and isinstance(optimizer, Optimizer) else None
        if part is not None:
            yield Hit(event.node, _said(optimizer).replace("These", "Some of these", 1), part.origin)


def _half_part(optimizer: Optimizer) -> Tensor | None:
    """A parameter that is float16 in every run, among those of the module that the optimizer was given whole."""
    given = optimizer.parameters
    owner = given.owner if isinstance(given, Items) else None
    return None if owner is None else next((one for one in each_parameter(owner) if one.only("float16")), None)


def _said(optimizer: object) -> str:
    fused = isinstance(optimizer, Optimizer) and optimizer.option("fused") == Const(True)
    if fused:
        return "These float16 parameters are stepped by a GradScaler; with fused=True it does not even raise."
    return 'These parameters are float16, so GradScaler will raise "Attempting to unscale FP16 gradients."'


def _trainers(trace: Trace, view: FileView) -> Iterator[Hit]:
    """The Trainer of Hugging Face with `fp16=True` makes a GradScaler of its own."""
    if not any(_asks_for_fp16(call, view) for call in view.nodes(ast.Call)):
        return
    for event in trace.of("call"):
        name = getattr(event.value(), "name", "")
        model = event.keywords.get("model", event.value(1))
        if name in ("transformers.Trainer", "transformers.Seq2SeqTrainer") and _is_half(model):
            yield Hit(event.node, _said(None), model.source if isinstance(model, Instance) else None)


def _asks_for_fp16(call: ast.Call, view: FileView) -> bool:
    name = view.dotted(call.func) or ""
    return name.endswith("TrainingArguments") and view.constant(view.argument(call, None, "fp16")) is True


def _is_half(model: object) -> bool:
    return isinstance(model, Instance) and model.dtypes == frozenset({"float16"})
