"""Under manual optimization Lightning scales the loss in manual_backward, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Edit, Finding, Severity

TRAINERS = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")
SCALED = ("16-mixed", "16", 16)
"""The precisions for which Lightning makes a GradScaler."""
_HOOKS = ("backward", "manual_backward")
"""Methods of a module that run backward in Lightning's place."""


class BackwardPastLightning(Rule):
    """`loss.backward()` with `automatic_optimization = False` and `Trainer(precision="16-mixed")`."""

    code = "MP004"
    name = "backward-past-lightning"
    severity = Severity.ERROR
    title = "backward() runs on a loss that Lightning has not scaled, although its scaler takes the step."
    why = (
        'With precision="16-mixed" the optimizers of self.optimizers() step through a GradScaler, which divides the '
        "gradients by the loss scale. Only self.manual_backward multiplies the loss by it. PyTorch raises where "
        "nothing has been scaled yet; otherwise updates are 65536 times too small."
    )
    bad = """\
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.layer(batch).square().mean()
        loss.backward()
        optimizer.step()


L.Trainer(accelerator="gpu", precision="16-mixed").fit(Net(), loader)
"""
    good = """\
import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.layer(batch).square().mean()
        self.manual_backward(loss)
        optimizer.step()


L.Trainer(accelerator="gpu", precision="16-mixed").fit(Net(), loader)
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://lightning.ai/docs/pytorch/stable/model/manual_optimization.html",
        "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/plugins/precision/amp.py",
    )
    words = ("automatic_optimization",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per backward call, where every trainer of the file scales and the script itself does not."""
        trainers = list(view.calls(*TRAINERS))
        if not trainers or not all(_scales(view, call) for call in trainers) or _steps_or_scales_itself(view):
            return
        modules = {cls for cls in view.nodes(ast.ClassDef) if _is_manual(view, cls)}
        for call in view.nodes(ast.Call):
            func, cls = call.func, view.class_of(call)
            if not isinstance(func, ast.Attribute) or func.attr != "backward" or cls not in modules:
                continue
            function = view.function(call)
            if isinstance(function, ast.FunctionDef) and function.name not in _HOOKS and _is_loss(view, func.value):
                loss = view.text(func.value)
                message = f"{loss}.backward() is not scaled, but Lightning's scaler divides its gradients by the scale."
                fix = self.fix(f"Write self.manual_backward({loss}).", _edit(view, call, loss))
                yield self.finding(view, call, message, fix=fix)


def _scales(view: FileView, call: ast.Call) -> bool:
    """Whether a trainer runs in float16 with a scaler; on the CPU it falls back to bfloat16."""
    precision = view.constant(view.argument(call, None, "precision"))
    on_cpu = view.constant(view.argument(call, None, "accelerator")) == "cpu"
    return precision in SCALED and not on_cpu


def _steps_or_scales_itself(view: FileView) -> bool:
    """Whether the script reaches past Lightning: for its optimizers as they are, or for a scaler."""
    names = {node.attr for node in view.nodes(ast.Attribute)} | {node.arg for node in view.nodes(ast.keyword)}
    return "optimizers" not in names or bool(names & {"plugins", "scale", "scaler", "use_pl_optimizer"})


def _is_manual(view: FileView, cls: ast.ClassDef) -> bool:
    """Whether a class is a LightningModule that sets `automatic_optimization = False`."""
    if not any((view.dotted(base) or "").endswith("LightningModule") for base in cls.bases):
        return False
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is False
        and any(_last(target) == "automatic_optimization" for target in node.targets)
        for node in ast.walk(cls)
    )


def _last(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _is_loss(view: FileView, node: ast.expr) -> bool:
    """Whether this may be a loss: no object of the module's own, as a strategy or a metric is, and no module."""
    return not isinstance(node, ast.Attribute) and not (isinstance(node, ast.Name) and node.id in view.imports)


def _edit(view: FileView, call: ast.Call, loss: str) -> Edit | None:
    """The same through Lightning, with what else backward is given, where the function has a `self`."""
    function = view.function(call)
    places = function.args.args if isinstance(function, ast.FunctionDef) else []
    if not places or places[0].arg != "self" or call.args:
        return None
    given = "".join(f", {view.text(keyword)}" for keyword in call.keywords)
    return view.edit.replace(call, f"self.manual_backward({loss}{given})")
