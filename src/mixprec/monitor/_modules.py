"""Modules are looked at as they compute: the extremes of what they return, and of the gradient that comes back.

A forward hook reads an output before anything can write to it in place. Gradients are read by hooks on the output
tensors: full backward hooks wrap outputs in views, which breaks models that work in place. What an activation
checkpoint recomputes is not looked at again.

Hooks are in place while modules are looked at; only those on whole models stay. In a compiled model all of them stay,
since taking one out would mean another graph: they become part of the one graph, at the price of a reduction that is
fused into the rest. There are no tensor hooks in it, which Dynamo traces only under compiled autograd.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mixprec.monitor._numbers import Numbers
from mixprec.monitor._outputs import DTYPES, floating
from mixprec.monitor._samples import counts_of, sampled

__all__ = ["ModuleWatch", "Traces", "path_of"]

CALLS = 8
"""Calls of one module that are looked at in one step; recurrent cells are called thousands of times."""

REPEATS = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Modules that return what they were given."""

_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def path_of(name: str) -> str:
    """A module's or parameter's name without what DDP, FSDP, torch.compile and checkpoint wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


class _Cell:
    """What is known of one module in the current step."""

    __slots__ = ("compiled", "gradients", "outputs", "path", "root", "samples")

    def __init__(self, path: str, root: bool) -> None:
        self.path = path
        self.root = root
        self.compiled: tuple[Tensor, Tensor, torch.dtype] | None = None
        self.forget()

    def forget(self) -> None:
        self.outputs: list[tuple[Tensor, Tensor, torch.dtype]] = []
        self.gradients: list[tuple[Tensor, Tensor, torch.dtype]] = []
        self.samples: list[Tensor] = []


class Traces:
    """What the modules left in the numbers of a step: dtypes by path, which are whole models, and samples in order."""

    def __init__(self) -> None:
        self.dtypes: dict[str, str] = {}
        self.grad_dtypes: dict[str, str] = {}
        self.roots: list[str] = []
        self.sampled: list[tuple[str, int]] = []


NOTHING = Traces()
"""Of a step in which no module was looked at; nobody writes to it."""


class ModuleWatch:
    """Hooks on modules, in place while `looking`; outputs of whole models are also looked at in steps for `logits`."""

    def __init__(self, elements: int) -> None:
        self.looking = False
        self.logits = True
        self.elements = elements
        self._cells: list[tuple[weakref.ref[nn.Module], _Cell]] = []  # a model may go when its training is over
        self._roots: list[_Cell] = []
        self._touched: list[_Cell] = []
        self._staying: list[RemovableHandle] = []
        self._passing: list[RemovableHandle] = []

    def attach(self, module: nn.Module, prefix: str = "") -> None:
        """Watches `module` and what is worth watching inside it, under paths that begin with `prefix`."""
        for name, inner in _worth_watching(module):
            path = ".".join(part for part in (prefix, path_of(name)) if part)
            cell = _Cell(path or "(model)", inner is module)
            if cell.root:
                self._roots.append(cell)
                self._staying.append(inner.register_forward_hook(self._hook(cell)))
            else:
                self._cells.append((weakref.ref(inner), cell))
                if self.looking:
                    self._passing.append(inner.register_forward_hook(self._hook(cell)))

    def look(self, looking: bool, logits: bool = True) -> None:
        """Begins or ends looking at modules inside the models, and at `logits`, what the models return.

        **Cost**: microseconds per module, where `looking` changes.
        """
        if looking and not self._passing:
            self._cells = [(reference, cell) for reference, cell in self._cells if reference() is not None]
            for reference, cell in self._cells:
                module = reference()
                if module is not None:
                    self._passing.append(module.register_forward_hook(self._hook(cell)))
        elif not looking and self._passing and not any(cell.compiled for _, cell in self._cells):
            self._take_out(self._passing)
        self.looking, self.logits = looking, logits or looking

    def remove(self) -> None:
        """Takes the hooks out."""
        self._take_out(self._staying)
        self._take_out(self._passing)

    def _take_out(self, handles: list[RemovableHandle]) -> None:
        for handle in handles:
            handle.remove()
        handles.clear()

    def _hook(self, cell: _Cell) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                _trace_output(cell, output)
            elif (self.logits if cell.root else self.looking) and torch._C._current_autograd_node() is None:
                self._look(cell, output)

        return hook

    def _look(self, cell: _Cell, output: Any) -> None:
        for tensor in floating(output):
            if len(cell.outputs) >= CALLS:
                return
            if not cell.outputs:
                self._touched.append(cell)
            seen = tensor.detach()
            cell.outputs.append((*torch.aminmax(seen), seen.dtype))
            if self.looking and tensor.requires_grad and torch.is_grad_enabled():
                tensor.register_hook(self._gradient_hook(cell))  # type: ignore[no-untyped-call] # torch leaves it untyped

    def _gradient_hook(self, cell: _Cell) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            if not self.looking or len(cell.gradients) >= CALLS or gradient.dtype not in DTYPES:
                return
            seen = gradient.detach()
            cell.gradients.append((*torch.aminmax(seen), seen.dtype))
            if len(cell.samples) < 2:
                cell.samples.append(sampled(seen, self.elements).clone())

        return hook

    def collect(self, numbers: Numbers) -> Traces:
        """Hands what was seen since the last call to `numbers`, under the keys ("low" | "high" | "grad", path) and
        "module_counts", and forgets it.
        """
        seen = self._seen()
        if not seen:
            return NOTHING
        traces = Traces()
        for cell in seen:
            _collect_outputs(cell, numbers, traces)
        if self.looking:
            self._collect_samples(numbers, traces)
        for cell in self._touched:
            cell.forget()
        self._touched = []
        return traces

    def _seen(self) -> list[_Cell]:
        """Cells with something in them; those of compiled models are filled without anybody being told."""
        if not self.looking:
            return self._touched or [cell for cell in self._roots if cell.compiled]
        return [cell for cell in (*self._roots, *(cell for _, cell in self._cells)) if cell.outputs or cell.compiled]

    def _collect_samples(self, numbers: Numbers, traces: Traces) -> None:
        pairs = [(cell.path, sample) for cell in self._touched for sample in cell.samples]
        for device in dict.fromkeys(sample.device for _, sample in pairs):
            here = [(path, sample) for path, sample in pairs if sample.device == device]
            numbers.add("module_counts", counts_of([sample for _, sample in here]))
            traces.sampled += [(path, sample.numel()) for path, sample in here]


def _trace_output(cell: _Cell, output: Any) -> None:
    for tensor in floating(output):
        seen = tensor.detach()
        cell.compiled = (*torch.aminmax(seen), seen.dtype)
        return


def _collect_outputs(cell: _Cell, numbers: Numbers, traces: Traces) -> None:
    found = cell.outputs or ([cell.compiled] if cell.compiled else [])
    for low, high, dtype in found:
        numbers.add(("low", cell.path), low)
        numbers.add(("high", cell.path), high)
        traces.dtypes[cell.path] = DTYPES[dtype]
    if found and cell.root:
        traces.roots.append(cell.path)
    for low, high, dtype in cell.gradients:
        numbers.add(("grad", cell.path), low)
        numbers.add(("grad", cell.path), high)
        traces.grad_dtypes[cell.path] = DTYPES[dtype]


def _worth_watching(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model, its leaves, what owns parameters, and members of lists and sequences, which residual blocks are."""
    members = {
        id(child) for m in model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential)) for child in m.children()
    }
    for name, module in model.named_modules():
        leaf = next(module.children(), None) is None
        own = next(module.parameters(recurse=False), None) is not None
        if isinstance(module, (nn.ModuleList, nn.ModuleDict, *REPEATS)) and module is not model:
            continue
        wrapper = name.rpartition(".")[2] in _WRAPPERS and not (leaf or own)
        if module is model or leaf or own or (id(module) in members and not wrapper):
            yield name, module
