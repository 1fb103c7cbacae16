"""Each use of a mixed-precision name is understood or carries the reason why it is not."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
from libcst.metadata import (
    ExpressionContext,
    ExpressionContextProvider,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameProvider,
)

from mixprec.migrate._names import AUTOCAST_ORDER, MODULES, SPELLINGS, Spelling
from mixprec.migrate._result import Refusal

__all__ = ["Import", "Use", "UseFinder", "dotted", "root_of"]


_INSIDE_A_TYPE = (
    cst.Arg,
    cst.BinaryOperation,
    cst.Element,
    cst.Index,
    cst.Subscript,
    cst.SubscriptElement,
    cst.Tuple,
)


@dataclass(frozen=True)
class Use:
    """One use: the name's `root` in the file, how it is spelled, and `objection`, why it is not understood."""

    node: cst.BaseExpression
    root: str
    spelling: Spelling
    line: int
    objection: str | None = None


@dataclass(frozen=True)
class Import:
    """One name that an import binds: `source` dotted, `bound` as the file calls it."""

    source: str
    bound: str
    line: int
    objection: str | None = None


class UseFinder(cst.CSTVisitor):
    """Collects `uses` and `imports` of a module, `loads` of every name, and star imports in `refusals`."""

    METADATA_DEPENDENCIES = (
        QualifiedNameProvider,
        PositionProvider,
        ParentNodeProvider,
        ExpressionContextProvider,
    )

    def __init__(self) -> None:
        super().__init__()
        self.uses: list[Use] = []
        self.imports: list[Import] = []
        self.refusals: list[Refusal] = []
        self.loads: dict[str, int] = {}

    def visit_Import(self, node: cst.Import) -> bool:  # noqa: N802 - libcst's own naming
        """`import torch.cuda.amp as amp`."""
        for alias in node.names:
            name = dotted(alias.name)
            if name in MODULES and alias.asname is not None:
                self._bind(node, name, dotted(alias.asname.name))
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:  # noqa: N802 - libcst's own naming
        """`from torch.cuda.amp import autocast` and `from torch.cuda import amp`."""
        module = "" if node.module is None or node.relative else dotted(node.module)
        if isinstance(node.names, cst.ImportStar):
            if module in MODULES:
                why = "a star import does not say which names it brings"
                self.refusals.append(Refusal(self._line(node), f"from {module} import *", why))
            return False
        for alias in node.names:
            source = f"{module}.{dotted(alias.name)}"
            if source in SPELLINGS or source in MODULES:
                self._bind(node, source, dotted(alias.name if alias.asname is None else alias.asname.name))
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802 - libcst's own naming
        """`amp.autocast` and `torch.cuda.amp.autocast`; of any other attribute, what it belongs to."""
        return not self._seen(node)

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:  # noqa: N802 - libcst's own naming
        """An attribute's own name is no use of that name."""

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802 - libcst's own naming
        """`autocast`, imported by name."""
        parent = self.get_metadata(ParentNodeProvider, node, None)
        names_something = isinstance(parent, (cst.Attribute, cst.Arg, cst.Param, cst.FunctionDef, cst.ClassDef))
        if names_something and node in (getattr(parent, "attr", None), getattr(parent, "keyword", None)):
            return
        if self.get_metadata(ExpressionContextProvider, node, None) is ExpressionContext.LOAD:
            self.loads[node.value] = self.loads.get(node.value, 0) + 1
        self._seen(node)

    def _seen(self, node: cst.Name | cst.Attribute) -> bool:
        names = {each.name for each in self.get_metadata(QualifiedNameProvider, node, set())}
        known = names & SPELLINGS.keys()
        context = self.get_metadata(ExpressionContextProvider, node, None)
        if not known or (context is None and isinstance(node, cst.Name)):
            return False
        spelling = SPELLINGS[min(known)]
        root = root_of(node)
        self.loads[root] = self.loads.get(root, 0) + isinstance(node, cst.Attribute)
        if context is not ExpressionContext.LOAD:
            objection: str | None = "it is assigned to"
        elif len(names) > 1:
            objection = "the name is bound in several places"
        else:
            objection = self._objection(node, spelling)
        self.uses.append(Use(node, root, spelling, self._line(node), objection))
        return True

    def _objection(self, node: cst.BaseExpression, spelling: Spelling) -> str | None:
        if not spelling.deprecated:
            return None
        parent = self.get_metadata(ParentNodeProvider, node)
        if isinstance(parent, cst.Call) and parent.func is node:
            return _call_objection(parent, spelling)
        if isinstance(parent, cst.Decorator) and spelling.kind.startswith("custom_"):
            return None
        if spelling.kind == "GradScaler" and self._only_names_the_type(node):
            return None
        return "it is used as a value here, and whoever calls it passes the old arguments"

    def _only_names_the_type(self, node: cst.CSTNode) -> bool:
        """Whether `node` stands in an annotation, or is what isinstance asks about."""
        while True:
            parent = self.get_metadata(ParentNodeProvider, node, None)
            if isinstance(parent, cst.Annotation):
                return True
            if isinstance(parent, cst.Call):
                return isinstance(parent.func, cst.Name) and parent.func.value == "isinstance"
            if not isinstance(parent, _INSIDE_A_TYPE):
                return False
            node = parent

    def _bind(self, node: cst.CSTNode, source: str, bound: str) -> None:
        objection = None
        around: cst.CSTNode | None = node
        while around is not None and not isinstance(around, cst.Module):
            if isinstance(around, (cst.Try, cst.If)):
                objection = "it is imported under a condition, where the file chooses between versions by itself"
            around = self.get_metadata(ParentNodeProvider, around, None)
        self.imports.append(Import(source, bound, self._line(node), objection))

    def _line(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)


def _call_objection(call: cst.Call, spelling: Spelling) -> str | None:
    positional = [arg for arg in call.args if arg.keyword is None]
    if any(arg.star == "*" for arg in positional):
        return "its arguments are unpacked, and their order has changed"
    if spelling.kind == "autocast" and len([a for a in positional if not a.star]) > len(AUTOCAST_ORDER):
        return f"it takes {len(AUTOCAST_ORDER)} arguments"
    if any(arg.keyword is not None and arg.keyword.value == "device_type" for arg in call.args):
        return "it has no argument device_type"
    return None


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` of names and attributes; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def root_of(node: cst.CSTNode) -> str:
    """The first name of `a.b.c`."""
    return dotted(node).partition(".")[0]
