"""`torch.cuda.amp`, `torch.cpu.amp` and `torch.amp` become current PyTorch or mixprec, name by name.

A name that the file imports is moved only where all its uses are understood, so that an import and what it serves
never part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst
from libcst.codemod import CodemodContext
from libcst.codemod.visitors import AddImportsVisitor

from mixprec.migrate._names import AUTOCAST_ORDER, MODULES, SPELLINGS, Spelling, target_of
from mixprec.migrate._result import Refusal
from mixprec.migrate._uses import Import, Use, UseFinder, dotted

__all__ = ["migrate_torch_amp"]

Node = TypeVar("Node", bound=cst.CSTNode)


def migrate_torch_amp(module: cst.Module, to: str) -> tuple[cst.Module, list[Refusal]]:
    """`module` with what is understood moved to `"torch"` or `"mixprec"`, and what is not."""
    wrapper = cst.MetadataWrapper(module)
    finder = UseFinder()
    wrapper.visit(finder)
    refused, refusals = _refused_roots(finder, to)
    wanted = [u for u in finder.uses if u.objection is None and u.root not in refused and _moves(u.spelling, to)]
    imports = [i for i in finder.imports if i.bound not in refused]
    if not wanted and not any(_import_moves(each, to) for each in imports):
        return module, refusals
    mover = _Mover(wanted, imports, finder.loads, to)
    moved = wrapper.module.visit(mover)
    context = CodemodContext()
    for needed in sorted(mover.needed):
        AddImportsVisitor.add_needed_import(context, needed)
    return AddImportsVisitor(context).transform_module(moved), refusals


def _refused_roots(finder: UseFinder, to: str) -> tuple[set[str], list[Refusal]]:
    """Names whose import or one of whose uses is not understood, with the reasons; `torch` itself is never refused."""
    refusals = list(finder.refusals)
    refused = set()
    for each in finder.imports:
        if each.objection and _import_moves(each, to):
            refused.add(each.bound)
            refusals.append(Refusal(each.line, each.source, each.objection))
    bound = {each.bound for each in finder.imports}
    for use in finder.uses:
        if use.objection and _moves(use.spelling, to):
            refused |= {use.root} & bound
            refusals.append(Refusal(use.line, dotted(use.node), use.objection))
    return refused, refusals


def _moves(spelling: Spelling, to: str) -> bool:
    return spelling.deprecated or target_of(spelling.kind, to) == "mixprec"


def _import_moves(each: Import, to: str) -> bool:
    if each.source in SPELLINGS:
        return _moves(SPELLINGS[each.source], to)
    return each.source not in ("torch.amp", "torch.amp.autocast_mode", "torch.amp.grad_scaler") or to == "mixprec"


class _Mover(cst.CSTTransformer):
    """Rewrites the wanted uses and the imports that they came by. `needed` are modules to import beside."""

    def __init__(self, wanted: Sequence[Use], imports: Sequence[Import], loads: dict[str, int], to: str) -> None:
        super().__init__()
        self._to = to
        self._wanted = {id(use.node): use for use in wanted}
        self._bound = {each.bound: each for each in imports}
        self._loads = loads
        self.needed: set[str] = set()

    # ── uses ──

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802 - libcst's own
        """The device goes first, and arguments whose order has changed get their names."""
        use = self._wanted.get(id(original_node.func))
        if use is None or use.spelling.device is None:
            return updated_node
        return updated_node.with_changes(args=_arguments(updated_node.args, use.spelling.kind, use.spelling.device))

    def leave_Decorator(  # noqa: N802 - libcst's own naming
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator:
        """`@custom_fwd` without parentheses gets them, for the device to stand in."""
        use = self._wanted.get(id(original_node.decorator))
        if use is None or use.spelling.device is None:
            return updated_node
        call = cst.Call(updated_node.decorator, args=_arguments((), use.spelling.kind, use.spelling.device))
        return updated_node.with_changes(decorator=call)

    def leave_Attribute(  # noqa: N802 - libcst's own naming
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """`torch.cuda.amp.autocast` and `amp.autocast` become the dotted name of what they move to."""
        use = self._wanted.get(id(original_node))
        if use is None:
            return updated_node
        target = target_of(use.spelling.kind, self._to)
        if target == "mixprec":
            self.needed.add("mixprec")
            return _expression(f"mixprec.{use.spelling.kind}")
        return _expression(f"{self._home(use.root)}.{use.spelling.kind}")

    def _home(self, root: str) -> str:
        """What `torch.amp` is called in this file: by the name that its module was imported under, or in full."""
        if root in self._bound:
            return root
        if root != "torch":
            self.needed.add("torch")
        return "torch.amp"

    # ── imports ──

    def leave_SimpleStatementLine(  # noqa: N802 - libcst's own naming
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        """A line with imports is written anew, each import on a line of its own, if one of them moves."""
        parts = [self._import(small) for small in updated_node.body]
        if all(new == [old] for new, old in zip(parts, updated_node.body, strict=True)):
            return updated_node
        flat = [small for part in parts for small in part]
        if not flat:
            return cst.RemoveFromParent()
        lines = [cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for small in flat]
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)

    def _import(self, small: cst.BaseSmallStatement) -> list[cst.BaseSmallStatement]:
        if isinstance(small, cst.Import):
            return self._plain_import(small)
        if isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar) and small.module:
            return self._import_from(small, dotted(small.module), list(small.names))
        return [small]

    def _plain_import(self, statement: cst.Import) -> list[cst.BaseSmallStatement]:
        """`import torch.cuda.amp as amp`; without `as` it binds `torch` and stays."""
        names = []
        for alias in statement.names:
            source, bound = dotted(alias.name), "" if alias.asname is None else dotted(alias.asname.name)
            if source not in MODULES or bound not in self._bound:
                names.append(alias)
            elif self._stays(bound):
                names.append(alias.with_changes(name=_expression("torch.amp")))
        if names == list(statement.names):
            return [statement]
        return [statement.with_changes(names=_commas(names))] if names else []

    def _import_from(
        self, statement: cst.ImportFrom, module: str, aliases: list[cst.ImportAlias]
    ) -> list[cst.BaseSmallStatement]:
        """`from torch.cuda.amp import autocast`: each name goes to the module that has it now."""
        groups: dict[str, list[cst.ImportAlias]] = {}
        for alias in aliases:
            name = dotted(alias.name)
            bound = name if alias.asname is None else dotted(alias.asname.name)
            groups.setdefault(self._module_for(module, name, bound), []).append(alias)
        if list(groups) == [module]:
            return [statement]
        groups.pop("", None)
        return [
            statement.with_changes(module=_expression(home), names=_commas(names)) for home, names in groups.items()
        ]

    def _module_for(self, module: str, name: str, bound: str) -> str:
        """Where `from module import name` imports from after the move; empty where it is no longer needed."""
        source = f"{module}.{name}"
        if bound not in self._bound or self._bound[bound].source != source:
            return module
        if source in SPELLINGS:
            spelling = SPELLINGS[source]
            return target_of(spelling.kind, self._to) if _moves(spelling, self._to) else module
        if source in MODULES and name == "amp":
            return "torch" if self._stays(bound) else ""
        return module

    def _stays(self, bound: str) -> bool:
        """Whether the module `bound` is still needed: for something that went to torch.amp, or that nobody knows."""
        gone = [
            u for u in self._wanted.values() if u.root == bound and target_of(u.spelling.kind, self._to) != "torch.amp"
        ]
        return self._loads.get(bound, 0) > len(gone) or not gone


def _arguments(given: Sequence[cst.Arg], kind: str, device: str) -> list[cst.Arg]:
    value = cst.SimpleString(f'"{device}"')
    if kind.startswith("custom_"):
        first = cst.Arg(value, keyword=cst.Name("device_type"), equal=_EQUAL)
        positional = [arg for arg in given if arg.keyword is None]
        named = [arg for arg in given if arg.keyword is not None]
        return _commas([*positional, first, *named])
    order = iter(AUTOCAST_ORDER if kind == "autocast" else ())
    return _commas([cst.Arg(value), *(_named(arg, next(order, None)) for arg in given)])


def _named(arg: cst.Arg, name: str | None) -> cst.Arg:
    if name is None or arg.keyword is not None or arg.star:
        return arg
    return arg.with_changes(keyword=cst.Name(name), equal=_EQUAL)


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _commas(items: Sequence[Node]) -> list[Node]:
    """`items` with the default commas between them and none after the last, unless it had one on a line of its own."""
    *rest, last = items
    between = [item if isinstance(getattr(item, "comma", None), cst.Comma) else _default(item) for item in rest]
    return [*between, last if _breaks(last) else _default(last)]


def _default(item: Node) -> Node:
    changed: Node = item.with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return changed


def _breaks(item: cst.CSTNode) -> bool:
    comma = getattr(item, "comma", None)
    return isinstance(comma, cst.Comma) and isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace)


def _expression(name: str) -> cst.Attribute | cst.Name:
    node: cst.Attribute | cst.Name
    first, *rest = name.split(".")
    node = cst.Name(first)
    for part in rest:
        node = cst.Attribute(node, cst.Name(part))
    return node
