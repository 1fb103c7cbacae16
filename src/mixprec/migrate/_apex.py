"""Apex's `amp` becomes a scaler and regions as a whole: of a file either every use is understood or none moves."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from mixprec.migrate._apex_forward import forward_of
from mixprec.migrate._apex_read import ApexFile, read_apex
from mixprec.migrate._apex_write import Wrapper, Writer
from mixprec.migrate._result import Note, Refusal

__all__ = ["migrate_apex"]

_EVALUATION = (
    "Apex ran every forward pass in float16, evaluation included; now that of training alone is. Put others that "
    "should be in a region of their own."
)
_CHECKPOINT = "A state that Apex saved is laid out differently: `mixprec convert-scaler FILE --to torch` rewrites it."


def migrate_apex(module: cst.Module, to: str, opt_level: str | None) -> tuple[cst.Module, list[Refusal], list[Note]]:
    """`module` without Apex's amp, or as it was with the places that were not understood."""
    file = read_apex(module, opt_level)
    if file is None:
        return module, [], []
    wraps = []
    for backward in file.backwards:
        found = forward_of(file, backward)
        if isinstance(found, str):
            file.refuse(backward.statement, found)
        else:
            wraps.append(found)
    scaler = file.place_scaler()
    if file.refusals or scaler is None:
        return module, file.refusals, []
    notes = [Note(file.initialize_line, _EVALUATION), *(Note(line, _CHECKPOINT) for line in file.checkpoint_lines)]
    wrapped = file.module.visit(Wrapper(wraps, _region(to, scaler.name if scaler.conditional else None)))
    again = read_apex(wrapped, opt_level)
    assert again is not None
    placed = again.place_scaler()
    assert placed is not None
    written = again.module.visit(Writer(again, replace(placed, name=scaler.name), to))
    return _with_imports(written, again, to), [], notes


def _region(to: str, scaler: str | None) -> cst.BaseExpression:
    home = "mixprec" if to == "mixprec" else "torch"
    enabled = f", enabled={scaler}.is_enabled()" if scaler else ""
    return cst.parse_expression(f'{home}.autocast("cuda", dtype=torch.float16{enabled})')


def _with_imports(module: cst.Module, file: ApexFile, to: str) -> cst.Module:
    context = CodemodContext()
    AddImportsVisitor.add_needed_import(context, "torch")
    if to == "mixprec":
        AddImportsVisitor.add_needed_import(context, "mixprec")
    return AddImportsVisitor(context).transform_module(module)
