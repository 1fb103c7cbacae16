"""autocast takes the name of a device type first and a 16-bit dtype second; other arguments raise or switch it off."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._constants import Dtype
from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity

BY_DEVICE = (".cuda.amp", ".cpu.amp", ".xpu.amp")


class AutocastDisabled(Rule):
    """`torch.autocast(torch.device("cuda"))`, `torch.autocast("cuda", True)`, `torch.autocast(dtype=torch.float16)`."""

    code = "MP081"
    name = "autocast-disabled"
    severity = Severity.ERROR
    title = "autocast is given arguments with which it raises."
    why = "Its first argument is the name of a device type, not a device, a flag or a dtype; the second is a dtype."
    bad = """\
import torch

device = torch.device("cuda")


def run(model, x):
    with torch.autocast(device, dtype=torch.float16):
        return model(x)
"""
    good = """\
import torch

device = torch.device("cuda")


def run(model, x):
    with torch.autocast(device.type, dtype=torch.float16):
        return model(x)
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/autocast_mode.py",
    )
    words = ("autocast",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per argument."""
        for call in view.calls(*AUTOCASTS):
            name = view.dotted(call.func) or ""
            if view.constant(view.argument(call, None, "enabled")) is False:
                continue
            if any(part in name for part in BY_DEVICE):
                yield from self._dtype(view, call, 1)
            else:
                yield from self._device(view, call)
                yield from self._dtype(view, call, 1)

    def _device(self, view: FileView, call: ast.Call) -> Iterator[Finding]:
        node = view.argument(call, 0, "device_type")
        if node is None:
            given = [keyword.arg for keyword in call.keywords]
            if not call.args and None not in given:
                yield self.finding(view, call, 'device_type is missing, and autocast raises: autocast("cuda", ...).')
            return
        value = view.constant(node)
        if _is_device(view, node):
            fix = self.fix("Pass its type.", view.edit.replace(node, f"{view.text(node)}.type"))
            yield self.finding(
                view, node, "autocast raises: it wants the name of a device type, not a device.", fix=fix
            )
        elif isinstance(value, (bool, int, float, Dtype)):
            message = "autocast raises: its first argument is the name of a device type."
            yield self.finding(view, node, message, fix=self.fix('Name the device type: autocast("cuda", ...).'))

    def _dtype(self, view: FileView, call: ast.Call, place: int) -> Iterator[Finding]:
        node = view.argument(call, place, "dtype")
        value = view.constant(node)
        if node is None:
            return
        if isinstance(value, bool):
            fix = self.fix("Name the flag.", view.edit.replace(node, f"enabled={value}"))
            yield self.finding(view, node, "This flag is taken for the dtype.", fix=fix)


def _is_device(view: FileView, node: ast.expr) -> bool:
    """Whether an expression is a torch.device: made as one, or the device of a tensor or module."""
    if isinstance(node, ast.Call):
        return view.dotted(node.func) == "torch.device"
    if isinstance(node, ast.Attribute):
        return node.attr == "device" and isinstance(node.value, ast.Name) and node.value.id in ("x", "input", "inputs")
    if not isinstance(node, ast.Name):
        return False
    for scope in (view.function(node), view.tree):
        values = view.assignments(scope).get(node.id, ()) if scope is not None else ()
        if values:
            return all(isinstance(value, ast.Call) and view.dotted(value.func) == "torch.device" for value in values)
    return False
