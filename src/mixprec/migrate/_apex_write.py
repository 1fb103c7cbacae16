"""Two passes write a file without Apex: forward passes go into regions, then every call into the scaler's."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from mixprec.migrate._apex_forward import Forward
from mixprec.migrate._apex_read import ApexFile, ScalerPlace

__all__ = ["Wrapper", "Writer"]


class Wrapper(cst.CSTTransformer):
    """Puts forward passes into `region`."""

    def __init__(self, forwards: Sequence[Forward], region: cst.BaseExpression) -> None:
        super().__init__()
        self._region = region
        self._ranges: dict[int, set[tuple[int, int]]] = {}
        for forward in forwards:
            self._ranges.setdefault(id(forward.block), set()).add((forward.first, forward.last))

    def leave_IndentedBlock(  # noqa: N802 - libcst's own naming
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """A block inside something."""
        return updated_node.with_changes(body=self._wrapped(original_node, list(updated_node.body)))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:  # noqa: N802 - libcst's
        """The module's own block."""
        return updated_node.with_changes(body=self._wrapped(original_node, list(updated_node.body)))

    def _wrapped(self, block: cst.CSTNode, body: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
        for first, last in sorted(self._ranges.get(id(block), ()), reverse=True):
            inside = body[first : last + 1]
            lines = getattr(inside[0], "leading_lines", ())
            inside[0] = inside[0].with_changes(leading_lines=())
            region = cst.With([cst.WithItem(self._region)], cst.IndentedBlock(inside), leading_lines=lines)
            body[first : last + 1] = [region]
        return body


class Writer(cst.CSTTransformer):
    """Replaces what is Apex's by calls of the scaler at `place`."""

    def __init__(self, file: ApexFile, place: ScalerPlace, to: str) -> None:
        super().__init__()
        self._file = file
        self._place = place
        self._home = "mixprec" if to == "mixprec" else "torch.amp"
        self._backwards = {id(each.statement): each for each in file.backwards}
        self._imports = {id(statement) for statement in file.imports}
        self._masters = {id(call): of for call, of in file.master_params.items()}
        self._states = {id(node) for node in file.states}
        self._orphans: dict[int, list[cst.EmptyLine]] = {}

    def on_leave(  # type: ignore[override] # one method for all kinds of nodes, as libcst's own codemods do
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        """Whatever the plan says about `original_node`."""
        if isinstance(original_node, cst.BaseStatement):
            return self._with_orphans(original_node, self._statement(original_node, updated_node))
        if isinstance(original_node, cst.IndentedBlock) and isinstance(updated_node, cst.IndentedBlock):
            left = self._orphans.pop(id(original_node), [])
            return updated_node.with_changes(footer=[*left, *updated_node.footer]) if left else updated_node
        if id(original_node) in self._masters:
            optimizer = self._file.code(self._masters[id(original_node)])
            return cst.parse_expression(f'(p for group in {optimizer}.param_groups for p in group["params"])')
        if id(original_node) in self._states and isinstance(updated_node, cst.Attribute):
            return updated_node.with_changes(value=cst.parse_expression(self._place.name))
        if isinstance(original_node, cst.Module) and isinstance(updated_node, cst.Module):
            return self._after_imports(updated_node)
        return updated_node

    def _statement(
        self, original: cst.BaseStatement, updated: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        if id(original) in self._imports:
            return cst.RemoveFromParent()
        before: list[cst.CSTNode] = []
        after: list[cst.CSTNode] = [updated]
        if original is self._place.before:
            before.append(self._made())
        if original in self._file.clips:
            before.append(self._call(f"unscale_({self._file.clips[original]})"))
        if original is self._file.initialize:
            after = []
        elif isinstance(original, cst.SimpleStatementLine) and original in self._file.steps:
            after = [self._call(f"step({self._file.steps[original]})"), self._call("update()")]
        elif id(original) in self._backwards:
            after = [self._backward(original)]
        elif isinstance(updated, cst.If) and not updated.body.body and updated.orelse is None:
            after = []
        return self._joined(original, updated, [*before, *after])

    def _with_orphans(
        self, original: cst.BaseStatement, result: cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        """Comments above a statement that goes stand above the next one, or at the end of the block."""
        lines = self._orphans.pop(id(original), [])
        if isinstance(result, cst.RemovalSentinel):
            lines = [*lines, *(line for line in getattr(original, "leading_lines", ()) if line.comment is not None)]
            heir = self._heir(original)
            if lines and heir is not None:
                self._orphans[id(heir)] = lines
            return result
        if not lines:
            return result
        first, *rest = result.nodes if isinstance(result, cst.FlattenSentinel) else [result]
        first = first.with_changes(leading_lines=[*lines, *first.leading_lines])  # type: ignore[attr-defined] # a statement
        return cst.FlattenSentinel([first, *rest])

    def _heir(self, statement: cst.BaseStatement) -> cst.CSTNode | None:
        block = self._file.parent(statement)
        if not isinstance(block, (cst.Module, cst.IndentedBlock)):
            return None
        after = list(block.body)[list(block.body).index(statement) + 1 :]
        return after[0] if after else block

    @staticmethod
    def _joined(
        original: cst.BaseStatement, updated: cst.CSTNode, statements: list[cst.CSTNode]
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        """`statements` in the place of `original`: what stood above it stands above the first of them."""
        if not statements:
            return cst.RemoveFromParent()
        if statements == [updated]:
            return updated
        lines = getattr(original, "leading_lines", ())
        statements = [s.with_changes(leading_lines=()) for s in statements]
        statements[0] = statements[0].with_changes(leading_lines=lines)
        tail = getattr(original, "trailing_whitespace", None)
        if tail is not None and isinstance(statements[-1], cst.SimpleStatementLine):
            statements[-1] = statements[-1].with_changes(trailing_whitespace=tail)
        return cst.FlattenSentinel(statements)

    def _made(self) -> cst.CSTNode:
        return cst.parse_statement(f'{self._place.name} = {self._home}.GradScaler("cuda"{self._place.arguments})')

    def _call(self, call: str) -> cst.CSTNode:
        return cst.parse_statement(f"{self._place.name}.{call}")

    def _backward(self, original: cst.CSTNode) -> cst.CSTNode:
        each = self._backwards[id(original)]
        arguments = ", ".join(self._file.code(arg) for arg in each.call.args).rstrip(", ")
        return self._call(f"scale({self._file.code(each.loss)}).backward({arguments})")

    def _after_imports(self, module: cst.Module) -> cst.Module:
        """A scaler that several functions use is the module's."""
        if self._place.before is not None:
            return module
        body = list(module.body)
        last = max((i for i, statement in enumerate(body) if _is_import(statement)), default=-1)
        blank = cst.EmptyLine(indent=False)
        made = self._made().with_changes(leading_lines=[blank])
        return module.with_changes(body=[*body[: last + 1], made, *body[last + 1 :]])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )
