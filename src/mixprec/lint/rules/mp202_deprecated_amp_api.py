"""torch.cuda.amp and torch.cpu.amp are deprecated: torch.amp has the same under a device argument."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Edit, Finding, Severity

SINCE = (2, 4)
"""torch.amp.GradScaler is from 2.3, custom_fwd from 2.4; before that there is nothing to move to."""
DEVICES = ("cuda", "cpu")
AUTOCAST = ("enabled", "dtype", "cache_enabled")
"""The old order of autocast's arguments; the new one has the dtype first."""
NAMES = ("GradScaler", "autocast", "custom_bwd", "custom_fwd")


class DeprecatedAmpApi(Rule):
    """`torch.cuda.amp.autocast()`, `torch.cuda.amp.GradScaler()`, `torch.cuda.amp.custom_fwd`."""

    code = "MP202"
    name = "deprecated-amp-api"
    severity = Severity.INFO
    title = "torch.cuda.amp and torch.cpu.amp are deprecated in favour of torch.amp."
    why = (
        "They warn since PyTorch 2.4. torch.amp takes the device type as its first argument and is otherwise the same."
    )
    bad = """\
import torch
from torch.cuda.amp import GradScaler, autocast


def train(model, loss_fn, optimizer, loader, use_amp):
    scaler = GradScaler(enabled=use_amp)
    for x, y in loader:
        optimizer.zero_grad()
        with autocast(use_amp):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    good = """\
import torch
from torch.amp import GradScaler, autocast


def train(model, loss_fn, optimizer, loader, use_amp):
    scaler = GradScaler("cuda", enabled=use_amp)
    for x, y in loader:
        optimizer.zero_grad()
        with autocast("cuda", enabled=use_amp):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""
    fix_safety = FixSafety.SAFE
    sources = (
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/pytorch/pytorch/pull/126527",
    )
    words = ("cuda.amp", "cpu.amp", "import amp")

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per import that brings old names, and one per call that spells them out."""
        if view.project.may_run_below(SINCE):
            return
        for node in view.nodes(ast.ImportFrom):
            device = _device(node.module or "")
            if device and any(alias.name in NAMES for alias in node.names) and not _is_fallback(view, node):
                yield self._import(view, node, device)
        for call in view.nodes(ast.Call):
            device = _spelled_out(view, call)
            if device is not None:
                edits = _call_edits(view, call, device)
                message = f"{view.text(call.func)} is deprecated."
                fix = self.fix(f"Use torch.amp with {device!r} as the first argument.", *(edits or (None,)))
                yield self.finding(view, call.func, message, fix=fix)

    def _import(self, view: FileView, node: ast.ImportFrom, device: str) -> Finding:
        """The import and all uses of what it brings are rewritten together, or not at all."""
        edits = _import_edits(view, node, device)
        fix = self.fix(f"Import from torch.amp, and pass {device!r} first.", *(edits or (None,)))
        return self.finding(view, node, f"torch.{device}.amp is deprecated.", fix=fix)


def _device(module: str) -> str | None:
    return next((device for device in DEVICES if module.startswith(f"torch.{device}.amp")), None)


def _is_fallback(view: FileView, node: ast.AST) -> bool:
    """Whether an import stands in a try: then the file knows about versions itself."""
    return any(isinstance(ancestor, (ast.Try, ast.If)) for ancestor in view.ancestors(node))


def _spelled_out(view: FileView, call: ast.Call) -> str | None:
    """The device of `torch.cuda.amp.X(...)` written in full."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in NAMES:
        return None
    return next((device for device in DEVICES if view.text(call.func.value) == f"torch.{device}.amp"), None)


def _import_edits(view: FileView, node: ast.ImportFrom, device: str) -> list[Edit] | None:
    if any(alias.name not in NAMES for alias in node.names) or node.module != f"torch.{device}.amp":
        return None
    line = view.lines[node.lineno - 1]
    start = line.find(node.module)
    if start < 0 or node.col_offset > start:
        return None
    edits = [Edit(node.lineno, start + 1, node.lineno, start + 1 + len(node.module), "torch.amp")]
    for alias in node.names:
        for name in view.nodes(ast.Name):
            if name.id == (alias.asname or alias.name):
                more = _use_edits(view, name, alias.name, device)
                if more is None:
                    return None
                edits += more
    return edits


def _use_edits(view: FileView, name: ast.Name, what: str, device: str) -> list[Edit] | None:
    """The edits of one use; None where it is not one that can be rewritten."""
    parent = view.parent(name)
    if isinstance(parent, ast.Call) and parent.func is name:
        return _argument_edits(view, parent, what, device)
    decorates = isinstance(parent, ast.FunctionDef) and name in parent.decorator_list
    if decorates and what in ("custom_bwd", "custom_fwd"):
        return [view.edit.replace(name, f'{name.id}(device_type="{device}")')]
    return None


def _call_edits(view: FileView, call: ast.Call, device: str) -> list[Edit] | None:
    if not isinstance(call.func, ast.Attribute):
        return None
    arguments = _argument_edits(view, call, call.func.attr, device)
    return None if arguments is None else [view.edit.replace(call.func.value, "torch.amp"), *arguments]


def _argument_edits(view: FileView, call: ast.Call, what: str, device: str) -> list[Edit] | None:
    """The device put first, and positional arguments whose order has changed given their names."""
    if what in ("custom_bwd", "custom_fwd"):
        first = f'device_type="{device}"'
        if call.args:
            return None
    else:
        first = f'"{device}"'
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return None
    edits = []
    if what == "autocast":
        for arg, keyword in zip(call.args, AUTOCAST, strict=False):
            line, column = view.edit.span(arg)[:2]
            edits.append(Edit(line, column, line, column, f"{keyword}="))
    place = _opening(view, call)
    if place is None:
        return None
    empty = not call.args and not call.keywords
    return (
        [Edit(*place, *place, first if empty else f"{first}, "), *edits]
        if not _meets(edits, place)
        else _merged(edits, place, first)
    )


def _meets(edits: list[Edit], place: tuple[int, int]) -> bool:
    return any((edit.start_line, edit.start_column) == place for edit in edits)


def _merged(edits: list[Edit], place: tuple[int, int], first: str) -> list[Edit]:
    """Two insertions at one place as one."""
    inserted, *rest = edits
    return [Edit(*place, *place, f"{first}, {inserted.text}"), *rest]


def _opening(view: FileView, call: ast.Call) -> tuple[int, int] | None:
    """Right behind the opening parenthesis of a call; None where it does not follow the function's name."""
    line, column = view.edit.span(call.func)[2:]
    return (line, column + 1) if view.lines[line - 1][column - 1 : column] == "(" else None
