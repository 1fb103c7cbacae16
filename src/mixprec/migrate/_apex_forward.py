"""The forward pass of a scaled loss is the run of statements, before its backward, that the loss is made by."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from mixprec.migrate._apex_read import ApexFile, Backward, Block, Statement

__all__ = ["Forward", "forward_of"]

_BARRIERS = (cst.For, cst.While, cst.FunctionDef, cst.Module)


@dataclass(frozen=True)
class Forward:
    """Statements `first` to `last`, both included, of a block."""

    block: Block
    first: int
    last: int


def forward_of(file: ApexFile, backward: Backward) -> Forward | str:
    """The forward pass that `backward` belongs to, or why it was not found."""
    needed = _loads(backward.loss)
    node: cst.CSTNode = backward.statement
    for above in file.above(backward.statement):
        if isinstance(above, cst.BaseStatement):
            node = above
        block = file.parent(node)
        if isinstance(block, (cst.IndentedBlock, cst.Module)):
            body = list(block.body)
            end = next(i for i, statement in enumerate(body) if statement is node)
            found = _slice(body[:end], set(needed))
            if found:
                return _checked(file, block, body, _from_model(file, body, found))
        if isinstance(node, _BARRIERS):
            break
    return "the forward pass that makes this loss is not in the same function: put it in an autocast region by hand"


def _slice(before: list[Statement], needed: set[str]) -> list[int]:
    """Indices of the statements, in order, that what is `needed` at the end depends on."""
    marked = []
    for index in range(len(before) - 1, -1, -1):
        made = _stores(before[index])
        if made & needed:
            marked.append(index)
            needed |= _loads(before[index])
    return sorted(marked)


def _from_model(file: ApexFile, body: list[Statement], marked: list[int]) -> list[int]:
    """From the first statement that calls the model on; all of them where its name is another here."""
    calling = [i for i in marked if any(file.code(c.func) == file.model for c in _calls(body[i]))]
    return [i for i in marked if i >= calling[0]] if calling else marked


def _checked(file: ApexFile, block: Block, body: list[Statement], marked: list[int]) -> Forward | str:
    first, last = marked[0], marked[-1]
    for statement in body[first : last + 1]:
        ends = [
            c
            for c in _calls(statement)
            if isinstance(c.func, cst.Attribute) and c.func.attr.value in ("backward", "step")
        ]
        if ends or statement in file.steps or isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return f"line {file.line(statement)} stands inside its forward pass"
    return Forward(block, first, last)


def _calls(node: cst.CSTNode) -> list[cst.Call]:
    return [call for call in m.findall(node, m.Call()) if isinstance(call, cst.Call)]


def _loads(node: cst.CSTNode) -> set[str]:
    return {name.value for name in m.findall(node, m.Name()) if isinstance(name, cst.Name)}


def _stores(statement: cst.CSTNode) -> set[str]:
    """Names that a statement, or one inside it, assigns to."""
    found: set[str] = set()
    for assign in m.findall(statement, m.AssignTarget() | m.AnnAssign() | m.AugAssign()):
        assert isinstance(assign, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign))
        found |= _bound(assign.target)
    return found


def _bound(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, (cst.Tuple, cst.List)):
        return {name for element in target.elements for name in _bound(element.value)}
    return set()
