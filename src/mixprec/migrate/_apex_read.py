"""What a file does with Apex's `amp`: where it begins, which backwards it scales, which steps and clips follow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider, QualifiedNameProvider

from mixprec.migrate._result import Refusal
from mixprec.migrate._uses import dotted

__all__ = ["ApexFile", "Backward", "Block", "ScalerPlace", "Statement", "read_apex"]

Statement = cst.BaseStatement
Block = cst.Module | cst.IndentedBlock

_KNOWN = ("initialize", "scale_loss", "master_params", "state_dict", "load_state_dict")
_HARMLESS = ("opt_level", "verbosity", "keep_batchnorm_fp32", "num_losses", "min_loss_scale", "loss_scale")
_DEFAULTS = ("None", "1", "'dynamic'", '"dynamic"')
_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
_HALF_WEIGHTS = (
    "O2 and O3 store the weights in float16, which torch.amp does not. With float32 weights say --opt-level O1; "
    "float16 weights with float32 masters are mixprec.Precision('fp16-master', optimizer, model=model)"
)
_UNKNOWN_LEVEL = "opt_level is not a literal: say what it is with --opt-level O1"


@dataclass(frozen=True)
class Backward:
    """`with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`."""

    statement: cst.With
    loss: cst.BaseExpression
    optimizer: str
    call: cst.Call
    function: cst.CSTNode


@dataclass(frozen=True)
class ScalerPlace:
    """The scaler's `name`, the statement `before` which it is made (None: after the imports), and its arguments."""

    name: str
    before: Statement | None
    arguments: str
    conditional: bool


@dataclass
class ApexFile:
    """One file that imports Apex's amp. `refusals` are filled while reading and planning."""

    module: cst.Module
    wrapper: MetadataWrapper
    names: dict[cst.CSTNode, str] = field(default_factory=dict)
    imports: list[Statement] = field(default_factory=list)
    initialize: cst.SimpleStatementLine | None = None
    model: str = ""
    optimizer: str = ""
    arguments: str = ""
    backwards: list[Backward] = field(default_factory=list)
    steps: dict[cst.SimpleStatementLine, str] = field(default_factory=dict)
    clips: dict[Statement, str] = field(default_factory=dict)
    master_params: dict[cst.Call, cst.BaseExpression] = field(default_factory=dict)
    states: list[cst.Attribute] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    opt_level: str | None = None

    # ── looking around ──

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """What `node` is in."""
        return self.wrapper.resolve(ParentNodeProvider).get(node)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """`node`, and what it is in, outwards."""
        here: cst.CSTNode | None = node
        while here is not None:
            yield here
            here = self.parent(here)

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function that `node` is in, else the module."""
        return next(n for n in self.above(node) if isinstance(n, (cst.FunctionDef, cst.Lambda, cst.Module)))

    def statement(self, node: cst.CSTNode) -> Statement:
        """The statement that `node` is in."""
        return next(n for n in self.above(node) if isinstance(n, cst.BaseStatement))

    def line(self, node: cst.CSTNode) -> int:
        """Its 1-based line."""
        return int(self.wrapper.resolve(PositionProvider)[node].start.line)

    def code(self, node: cst.CSTNode) -> str:
        """Its text."""
        return self.module.code_for_node(node).strip()

    def refuse(self, node: cst.CSTNode, why: str) -> None:
        """Note that `node` is not understood."""
        self.refusals.append(Refusal(self.line(node), self.code(node).partition("\n")[0][:80], why))

    # ── reading ──

    def read(self) -> None:
        """Fill in everything, and refuse what is not understood."""
        for node, name in self.names.items():
            self._use(node, name)
        if self.initialize is None and not self.refusals:
            place = next(iter(self.names), self.imports[0])
            self.refuse(place, "amp.initialize is in another file, and the scaler has to be made where it is")
        if self.initialize is not None and not self.backwards and not self.refusals:
            self.refuse(self.initialize, "amp.scale_loss is in another file, which has to move together with this one")
        for function in {each.function for each in self.backwards}:
            self._read_function(function)

    def _use(self, node: cst.CSTNode, name: str) -> None:
        call = self.parent(node)
        if name not in _KNOWN:
            self.refuse(node, f"amp.{name} has no counterpart")
        elif not (isinstance(call, cst.Call) and call.func is node):
            self.refuse(node, "it is used as a value")
        elif name == "initialize":
            self._initialize(call)
        elif name == "scale_loss":
            self._scale_loss(call)
        elif name == "master_params":
            self.master_params[call] = call.args[0].value
        else:
            assert isinstance(node, cst.Attribute)
            self.states.append(node)

    def _initialize(self, call: cst.Call) -> None:
        line = self.statement(call)
        given = [self.code(arg.value) for arg in call.args if arg.keyword is None]
        named = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
        assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        targets = _targets(assign, self.code) if isinstance(assign, cst.Assign) else []
        if self.initialize is not None:
            self.refuse(call, "there is a second amp.initialize")
        elif len(given) != 2 or targets != given or any(text[:1] in "[(" for text in given):
            self.refuse(
                call, "understood is `model, optimizer = amp.initialize(model, optimizer, ...)` with one of each"
            )
        else:
            assert isinstance(line, cst.SimpleStatementLine)
            self.initialize, (self.model, self.optimizer) = line, given
            self._settings(call, named)

    def _settings(self, call: cst.Call, named: dict[str, cst.BaseExpression]) -> None:
        for name, value in named.items():
            plain = name in ("opt_level", "verbosity") or self.code(value) in _DEFAULTS
            if name not in _HARMLESS or not plain:
                self.refuse(call, f"{name}={self.code(value)} has no counterpart")
        level = named.get("opt_level")
        said = self.opt_level or (self.code(level).strip("'\"") if isinstance(level, cst.SimpleString) else None)
        if level is not None and said is None:
            self.refuse(call, _UNKNOWN_LEVEL)
        elif said in ("O2", "O3"):
            self.refuse(call, _HALF_WEIGHTS)
        elif said == "O0":
            self.arguments = ", enabled=False"

    def _scale_loss(self, call: cst.Call) -> None:
        line = self.statement(call)
        shape = m.With(items=[m.WithItem(asname=m.AsName(name=m.Name()))])
        if not (m.matches(line, shape) and isinstance(line, cst.With) and line.items[0].item is call):
            self.refuse(call, "understood is `with amp.scale_loss(loss, optimizer) as scaled_loss:`")
            return
        asname = line.items[0].asname
        assert asname is not None
        backward = _only_backward(line, self.code(asname.name))
        given = [arg.value for arg in call.args if arg.keyword is None]
        named = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        if backward is None:
            self.refuse(line, "more is done with the scaled loss than its backward()")
        elif len(given) != 2 or self.code(given[1])[:1] in "[(" or not named <= {"delay_unscale", "loss_id"}:
            self.refuse(call, "understood is one loss, one optimizer, and delay_unscale")
        else:
            self.backwards.append(Backward(line, given[0], self.code(given[1]), backward, self.function(line)))

    def _read_function(self, function: cst.CSTNode) -> None:
        optimizers = {each.optimizer for each in self.backwards if each.function is function}
        for call in m.findall(function, m.Call(func=m.Attribute(attr=m.Name("step")))):
            assert isinstance(call, cst.Call)
            assert isinstance(call.func, cst.Attribute)
            if self.code(call.func.value) in optimizers:
                self._step(call, self.code(call.func.value))
        stepped = set(self.steps.values())
        for each in self.backwards:
            if each.function is function and each.optimizer not in stepped:
                self.refuse(each.statement, f"{each.optimizer}.step() is not in the same function")
        for attribute in m.findall(function, m.Attribute(attr=m.Name("grad"))):
            if self._knows_no_scale(attribute):
                continue
            self.refuse(
                attribute, "gradients carry the loss scale until scaler.unscale_(optimizer), which Apex did before"
            )
        for call in m.findall(function, m.Call()):
            assert isinstance(call, cst.Call)
            if dotted(call.func).rpartition(".")[2] in _CLIPS:
                self._clip(call, optimizers)

    def _knows_no_scale(self, gradient: cst.CSTNode) -> bool:
        """Whether it is set to None or asked for None, which is the same at any scale."""
        above = self.parent(gradient)
        if isinstance(above, cst.AssignTarget):
            return m.matches(self.parent(above) or above, m.Assign(value=m.Name("None")))
        asked = m.ComparisonTarget(operator=m.Is() | m.IsNot(), comparator=m.Name("None"))
        return above is not None and m.matches(above, m.Comparison(comparisons=[asked]))

    def _step(self, call: cst.Call, optimizer: str) -> None:
        line = self.statement(call)
        alone = isinstance(line, cst.SimpleStatementLine) and m.matches(line, m.SimpleStatementLine([m.Expr(m.Call())]))
        if alone and not call.args:
            assert isinstance(line, cst.SimpleStatementLine)
            self.steps[line] = optimizer
        else:
            self.refuse(call, "understood is the statement `optimizer.step()`; a closure cannot be scaled")

    def _clip(self, call: cst.Call, optimizers: set[str]) -> None:
        line = self.statement(call)
        inside = [self.code(of) for master, of in self.master_params.items() if self.statement(master) is line]
        optimizer = inside[0] if inside else next(iter(optimizers)) if len(optimizers) == 1 else None
        if optimizer is None:
            self.refuse(call, "which of the optimizers it clips for is not clear")
        elif not self._step_follows(line, optimizer):
            self.refuse(call, f"{optimizer}.step() does not follow it, and gradients are unscaled once per step")
        elif not self._clipped_before(line):
            self.clips[line] = optimizer

    def _step_follows(self, line: Statement, optimizer: str) -> bool:
        for node in self.above(line):
            block = self.parent(node)
            if isinstance(block, (cst.IndentedBlock, cst.Module)) and isinstance(node, cst.BaseStatement):
                later = block.body[list(block.body).index(node) + 1 :]
                if any(isinstance(s, cst.SimpleStatementLine) and self.steps.get(s) == optimizer for s in later):
                    return True
            if isinstance(node, (cst.For, cst.While, cst.FunctionDef)):
                return False
        return False

    def _clipped_before(self, line: Statement) -> bool:
        block = self.parent(line)
        assert isinstance(block, (cst.IndentedBlock, cst.Module))
        return any(statement in self.clips for statement in block.body[: list(block.body).index(line)])

    # ── planning ──

    @property
    def initialize_line(self) -> int:
        """Where Apex is switched on."""
        return 1 if self.initialize is None else self.line(self.initialize)

    @property
    def checkpoint_lines(self) -> list[int]:
        """Where the state of amp is loaded."""
        return [self.line(node) for node in self.states if node.attr.value == "load_state_dict"]

    def place_scaler(self) -> ScalerPlace | None:
        """Where the scaler is made so that every use sees it; None, and a refusal, where there is no such place."""
        if self.initialize is None or self.refusals:
            return None
        name = self._free_name()
        start, condition = self._start()
        if start is None:
            self.refuse(self.initialize, "it stands under a condition with an else, or in a loop")
            return None
        arguments = self.arguments + (f", enabled=bool({condition})" if condition else "")
        home = self.function(self.initialize)
        users = {self.function(node) for node in self._users()}
        if self.optimizer.startswith("self."):
            return self._in_object(name, start, arguments, bool(condition))
        if users <= {home} or isinstance(home, cst.Module):
            return ScalerPlace(name, start, arguments, bool(condition))
        if condition:
            self.refuse(self.initialize, "it is conditional, and the backward is in another function")
            return None
        return ScalerPlace(name, None, arguments, False)

    def _in_object(self, name: str, start: Statement, arguments: str, conditional: bool) -> ScalerPlace | None:
        homes = {self._class_of(node) for node in [start, *self._users()]}
        if len(homes) == 1 and None not in homes:
            return ScalerPlace(f"self.{name}", start, arguments, conditional)
        self.refuse(start, "the optimizer belongs to an object, and other code than its class uses amp")
        return None

    def _class_of(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return next((n for n in self.above(node) if isinstance(n, cst.ClassDef)), None)

    def _users(self) -> list[cst.CSTNode]:
        return [*(each.statement for each in self.backwards), *self.steps, *self.clips, *self.states]

    def _start(self) -> tuple[Statement | None, str]:
        """The statement before which the scaler is made, and the condition under which Apex was switched on."""
        assert self.initialize is not None
        around = self.parent(self.parent(self.initialize) or self.initialize)
        if isinstance(around, cst.If):
            main = m.matches(around.test, m.Comparison(left=m.Name("__name__")))
            if main:
                return self.initialize, ""
            outer = self.parent(around)
            plain = around.orelse is None and isinstance(outer, (cst.IndentedBlock, cst.Module))
            return (around if plain else None), self.code(around.test)
        looped = any(isinstance(node, (cst.For, cst.While)) for node in self.above(self.initialize))
        return (None if looped else self.initialize), ""

    def _free_name(self) -> str:
        taken = {node.value for node in m.findall(self.module, m.Name()) if isinstance(node, cst.Name)}
        return next(name for name in ("scaler", "grad_scaler", "loss_scaler", "amp_scaler") if name not in taken)


def read_apex(module: cst.Module, opt_level: str | None) -> ApexFile | None:
    """What `module` does with Apex's amp; None where it does nothing."""
    wrapper = MetadataWrapper(module)
    file = ApexFile(wrapper.module, wrapper, opt_level=opt_level)
    values = []
    for node, lazy in wrapper.resolve(QualifiedNameProvider).items():
        if not isinstance(node, (cst.Attribute, cst.Name)):
            continue
        names = lazy() if callable(lazy) else lazy  # libcst resolves them when they are asked for
        found = [each.name.removeprefix("apex.amp.") for each in names if each.name.startswith("apex.amp.")]
        if any(each.name == "apex.amp" for each in names) and not isinstance(file.parent(node), cst.Attribute):
            values += [] if _in_import(file, node) else [node]
        if found and file.code(node).endswith(found[0]) and not _in_import(file, node):
            file.names[node] = found[0]
    for node in values:
        file.refuse(node, "it is used as a value")
    for line in m.findall(wrapper.module, m.ImportFrom() | m.Import()):
        _read_import(file, line)
    if not file.imports and not file.names and not file.refusals:
        return None
    if not file.refusals:
        file.read()
    return file


def _read_import(file: ApexFile, node: cst.CSTNode) -> None:
    if isinstance(node, cst.Import):
        if _serves_amp_only(file, node):
            _remove_import(file, node)
        return
    if not isinstance(node, cst.ImportFrom) or node.module is None:
        return
    module = dotted(node.module)
    if module.startswith("apex.amp"):
        file.refuse(node, "understood is `from apex import amp`")
    if module != "apex" or isinstance(node.names, cst.ImportStar):
        return
    if not any(dotted(alias.name) == "amp" for alias in node.names):
        return
    _remove_import(file, node)
    if len(node.names) > 1:
        file.refuse(node, "it is imported together with other names of Apex: import them apart")


def _remove_import(file: ApexFile, node: cst.CSTNode) -> None:
    line = file.statement(node)
    guard = file.parent(file.parent(line) or line)
    if isinstance(guard, cst.Try):
        if not _only_raises(guard):
            file.refuse(node, "it is imported under a condition, where the file goes on without Apex")
        line = guard
    file.imports.append(line)


def _serves_amp_only(file: ApexFile, node: cst.Import) -> bool:
    """Whether `import apex` or `import apex.amp` stands alone and every use of what it binds is one of amp."""
    (alias, *more) = node.names
    if more or dotted(alias.name) not in ("apex", "apex.amp") or not file.names:
        return False
    bound = "apex" if alias.asname is None else dotted(alias.asname.name)
    loads = [name for name in m.findall(file.module, m.Name(bound)) if not _in_import(file, name)]
    return all(
        any(above in file.names for above in file.above(name)) for name in loads if not _is_attribute(file, name)
    )


def _is_attribute(file: ApexFile, name: cst.CSTNode) -> bool:
    above = file.parent(name)
    return isinstance(above, cst.Attribute) and above.attr is name


def _only_raises(guard: cst.Try) -> bool:
    raises = m.IndentedBlock(body=[m.SimpleStatementLine(body=[m.Raise()])])
    return len(guard.body.body) == 1 and all(m.matches(handler.body, raises) for handler in guard.handlers)


def _in_import(file: ApexFile, node: cst.CSTNode) -> bool:
    return any(isinstance(n, (cst.Import, cst.ImportFrom)) for n in file.above(node))


def _targets(assign: cst.Assign, code: object) -> list[str]:
    (first, *more) = assign.targets
    if more or not isinstance(first.target, cst.Tuple):
        return []
    assert callable(code)
    return [code(element.value) for element in first.target.elements]


def _only_backward(statement: cst.With, scaled: str) -> cst.Call | None:
    """The call `scaled.backward(...)` if that is all that `statement` does."""
    if len(statement.body.body) != 1:
        return None
    shape = m.Expr(m.Call(func=m.Attribute(value=m.Name(scaled), attr=m.Name("backward"))))
    (line,) = statement.body.body
    small = line.body if isinstance(line, cst.SimpleStatementLine) else [line]
    if isinstance(statement.body, cst.SimpleStatementSuite):
        small = list(statement.body.body)
    if len(small) != 1 or not m.matches(small[0], shape):
        return None
    assert isinstance(small[0], cst.Expr)
    assert isinstance(small[0].value, cst.Call)
    return small[0].value
