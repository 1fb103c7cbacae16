"""A checkpoint holds model and optimizer but not the scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.protocol import facts, last_name
from mixprec.lint.rules._registries import incomplete
from mixprec.records import Finding, Severity

_MODELS = ("ema", "model", "net", "param", "policy", "weight")
"""Parts of the keys under which checkpoints hold a model, or its state under another name."""


class ScalerStateNotSaved(Rule):
    """`torch.save({"model": …, "optimizer": …})` beside a scaler, or a resume that leaves the scaler out."""

    code = "MP017"
    name = "scaler-state-not-saved"
    severity = Severity.WARNING
    title = "The checkpoint holds model and optimizer but not the scaler."
    why = (
        "A scaler without its saved state starts at its initial scale. After the resume a burst of steps is skipped, "
        "or small gradients vanish until the scale has grown back."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "last.pt"
)
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    words = ("GradScaler",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """What is saved or loaded is found by the calls of state_dict and load_state_dict, whatever the keys."""
        scalers = [
            call for call in view.calls(*SCALERS) if view.constant(view.argument(call, None, "enabled")) is not False
        ]
        if not scalers or view.owners or _handed_on(view):
            return
        saved = _stated(view, "state_dict")
        if not _of_scaler(view, saved):
            for stmt in _checkpoints(view, saved):
                text = "This checkpoint holds the optimizer's state but not the scaler's: the loss scale is lost."
                yield self.finding(view, stmt, text, fix=self.fix('Add "scaler": scaler.state_dict().'))
            for held in incomplete(view, saved):
                text = "The state of everything in this dict is saved, and the scaler is not in it: its scale is lost."
                yield self.finding(view, held, text, fix=self.fix('Add "scaler": scaler.'))
            return
        loaded = _stated(view, "load_state_dict")
        optimizers = [call for call in loaded if _of_optimizer(view, call)]
        if optimizers and not _of_scaler(view, loaded):
            text = "The optimizer's state is restored here but the scaler's, which is saved, is not."
            fix = self.fix('Add scaler.load_state_dict(checkpoint["scaler"]).')
            yield self.finding(view, optimizers[-1], text, fix=fix)


def _stated(view: FileView, method: str) -> list[ast.Call]:
    return [c for c in view.nodes(ast.Call) if isinstance(c.func, ast.Attribute) and c.func.attr == method]


def _owner(call: ast.Call) -> str:
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _of_scaler(view: FileView, calls: list[ast.Call]) -> bool:
    known = view.memo(facts)
    return any(known.is_scaler(_owner(call)) or "scaler" in _owner(call).lower() for call in calls)


def _of_optimizer(view: FileView, call: ast.Call) -> bool:
    return view.memo(facts).is_optimizer(_owner(call))


def _checkpoints(view: FileView, saved: list[ast.Call]) -> Iterator[ast.AST]:
    """The dicts, or statements, in which the states of an optimizer and of something else are put together."""
    seen: set[ast.AST] = set()
    for call in saved:
        if not _of_optimizer(view, call):
            continue
        holder = next((a for a in view.ancestors(call) if isinstance(a, (ast.Dict, ast.stmt))), None)
        scope = view.function(call) or view.tree
        beside = [other for other in saved if other is not call and (view.function(other) or view.tree) is scope]
        if holder is None or not any(not _of_optimizer(view, other) for other in beside):
            continue
        if isinstance(holder, ast.Dict) and not _holds_a_model(view, holder, beside):
            continue
        stmt = view.statement(call)
        if stmt not in seen:
            seen.add(stmt)
            yield stmt


def _holds_a_model(view: FileView, holder: ast.Dict, beside: list[ast.Call]) -> bool:
    """Whether a dict with an optimizer's state is a checkpoint: metadata of one may repeat that state alone."""
    if any(holder in view.ancestors(call) and not _of_optimizer(view, call) for call in beside):
        return True
    keys = [key.value.lower() for key in holder.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return any(word in key for key in keys for word in _MODELS)


def _handed_on(view: FileView) -> bool:
    """Whether the scaler is given to something that may save it, or a wrapper of it is saved."""
    known = view.memo(facts)
    for call in view.nodes(ast.Call):
        name = last_name(call.func).lower()
        if last_name(call.func) in known.functions:
            continue
        if "save" not in name and "checkpoint" not in name and "load" not in name and "resume" not in name:
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(known.is_scaler(last_name(arg)) or "scaler" in last_name(arg).lower() for arg in given):
            return True
    return False
