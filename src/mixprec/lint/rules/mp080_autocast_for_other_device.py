"""A region is for one device type: for CUDA it does nothing where everything is on the CPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


class AutocastForOtherDevice(Rule):
    """`torch.autocast("cuda")` in a script whose model and data are on the CPU."""

    code = "MP080"
    name = "autocast-for-other-device"
    severity = Severity.WARNING
    title = "An autocast region is for CUDA, and everything in the script is on the CPU."
    why = "Tensors of another device than the region's are left alone; without CUDA the region switches itself off."
    bad = """\
import torch

device = torch.device("cpu")
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda", dtype=torch.bfloat16):
    y = model(torch.ones(1, 8, device=device))
"""
    good = """\
import torch

device = torch.device("cpu")
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = model(torch.ones(1, 8, device=device))
"""
    fix_safety = FixSafety.NONE
    sources = ("https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",)
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per region, in a script that names the CPU as its device and CUDA nowhere else."""
        regions = [call for call in view.calls(*AUTOCASTS) if _is_for_cuda(view, call)]
        if regions and _trains(view) and (_runs_on_cpu(view, regions) or _never_moves(view, regions)):
            fix = self.fix('Name the device that the model is on: autocast("cpu", ...), or device.type.')
            for call in regions:
                message = "This region is for CUDA, and everything in this script is on the CPU."
                yield self.finding(view, call, message, fix=fix)


def _trains(view: FileView) -> bool:
    """Whether the file is a training script: of a library's file, callers decide about the device."""
    return any((view.dotted(call.func) or "").startswith("torch.optim.") for call in view.nodes(ast.Call))


def _is_for_cuda(view: FileView, call: ast.Call) -> bool:
    if view.constant(view.argument(call, None, "enabled")) is False:
        return False
    if ".cuda.amp" in (view.dotted(call.func) or ""):
        return True
    return bool(view.constant(view.argument(call, 0, "device_type")) == "cuda")


def _runs_on_cpu(view: FileView, regions: list[ast.Call]) -> bool:
    """Whether the script says "cpu", and "cuda" only where AMP wants it."""
    amp = {id(node) for call in (*regions, *view.calls(*SCALERS)) for node in ast.walk(call)}
    words = [node.value for node in view.nodes(ast.Constant) if isinstance(node.value, str) and id(node) not in amp]
    moves = any(node.attr == "cuda" and id(node) not in amp for node in view.nodes(ast.Attribute))
    return "cpu" in words and not moves and not any("cuda" in word for word in words) and _moves_to_cpu(view)


_PLAIN = frozenset({"collections", "contextlib", "copy", "dataclasses", "functools", "itertools", "math", "random"})
_PLAIN |= {"__future__", "numpy", "os", "sys", "time", "torch", "typing"}


def _never_moves(view: FileView, regions: list[ast.Call]) -> bool:
    """Whether the script makes its model and data itself, and moves or makes nothing on any device."""
    amp = {id(node) for call in (*regions, *view.calls(*SCALERS)) for node in ast.walk(call)}
    if any(name.partition(".")[0] not in _PLAIN for name in view.imports.values()):
        return False
    devices = {
        name for name, values in view.assignments(view.tree).items() if any(view.constant(v) == "cuda" for v in values)
    }
    if any(
        node.id in devices and isinstance(node.ctx, ast.Load) and id(node) not in amp for node in view.nodes(ast.Name)
    ):
        return False
    kept = {id(value) for name in devices for value in view.assignments(view.tree)[name]}
    words = [n.value for n in view.nodes(ast.Constant) if isinstance(n.value, str) and id(n) not in amp | kept]
    moves = [node.attr for node in view.nodes(ast.Attribute) if id(node) not in amp]
    if any(word.startswith("cuda") for word in words) or {"cuda", "device", "set_default_device", "to"} & set(moves):
        return False
    if any(keyword.arg == "device" for keyword in view.nodes(ast.keyword)):
        return False
    return _made_by_torch(view)


def _made_by_torch(view: FileView) -> bool:
    """Whether layers and data are made at module level, and no function is left to a caller with another device."""
    called = {view.dotted(call.func) or "" for call in view.nodes(ast.Call)}
    layers = any(name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper() for name in called)
    data = bool({"torch.rand", "torch.randn", "torch.ones", "torch.zeros", "torch.tensor"} & called)
    runs = any(view.function(call) is None for call in view.calls(*AUTOCASTS))
    return layers and data and runs


def _moves_to_cpu(view: FileView) -> bool:
    """Whether things are moved to, or made on, the CPU in every run, and never a device that comes from elsewhere."""
    asked: list[ast.expr] = []
    for call in view.nodes(ast.Call):
        asked += [keyword.value for keyword in call.keywords if keyword.arg == "device"]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
            asked += [node for node in call.args[:1] if view.dtype(node) is None]
    return bool(asked) and all(view.constant(node) == "cpu" or _is_cpu(view, node) for node in asked)


def _is_cpu(view: FileView, node: ast.expr) -> bool:
    """Whether a name is `torch.device("cpu")`."""
    if not isinstance(node, ast.Name):
        return False
    values = view.assignments(view.tree).get(node.id, ())
    made = [value for value in values if isinstance(value, ast.Call) and view.dotted(value.func) == "torch.device"]
    return (
        bool(values)
        and len(made) == len(values)
        and all(view.constant(call.args[0]) == "cpu" for call in made if call.args)
    )
