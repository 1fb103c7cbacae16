"""Gradients are cleared never, too early or too often."""

from __future__ import annotations

import ast

from mixprec.lint._rule import FixSafety
from mixprec.lint._view import FileView
from mixprec.lint.protocol import Conclusion, OrderRule, facts, last_name, receiver, trace
from mixprec.records import Finding, Severity


class GradientsNotCleared(OrderRule):
    """`zero_grad` missing in the loop, between backward and step, or in every micro-batch of a window."""

    code = "MP146"
    name = "gradients-not-cleared"
    severity = Severity.ERROR
    title = "zero_grad() is missing, or clears gradients that a step still needs."
    why = (
        "Gradients that stay after a step are added to the next ones; with a scaler each unscale_ divides the old part "
        "by the scale once more, which hides it until the scale is small. Cleared between backward and step, or in "
        "every micro-batch, they never reach the weights."
    )
    bad = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    good = """\
import torch

model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
    fix_safety = FixSafety.PROMPT
    sources = (
        "https://docs.pytorch.org/tutorials/recipes/recipes/zeroing_out_gradients.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    )
    kinds = ("cleared-before-step", "cleared-in-window", "left-behind", "stale-gradients")

    def also_again(self, view: FileView, conclusion: Conclusion) -> bool:
        """Only where the optimizer is this file's own; the caller of a function may clear another one."""
        return not conclusion.fault.outside

    def describe(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """Missing: at the backward that adds to what is left. Misplaced: at the call that clears."""
        node, changing = conclusion.fault.anchor, conclusion.changing
        if conclusion.kind == "stale-gradients":
            if _clears_elsewhere(view, conclusion):
                return None
            text = f"backward() adds to gradients that the last step has used{conclusion.when}: zero_grad() is missing."
            return self.finding(view, node, text, fix=self.fix("Call optimizer.zero_grad() once per step."))
        if conclusion.kind == "left-behind":
            return self._left_behind(view, conclusion)
        what = receiver(view, node)
        if conclusion.kind == "cleared-before-step":
            text = f"{what}.zero_grad() throws away what backward() has just made{conclusion.when}, before the step."
            return self.finding(
                view, node, text, fix=self.fix("Clear the gradients after the step, or before backward.")
            )
        if changing is None and _clears_each_time(view, node):
            text = f"{what}.zero_grad() clears the gradients of every micro-batch but the last, before the step."
            return self.finding(view, node, text, fix=self.fix("Clear the gradients once, before the loop."))
        if changing is None or not changing.window or changing.value:
            return None
        text = f"{what}.zero_grad() clears gradients that still wait for their step{conclusion.when}."
        return self.finding(view, node, text, fix=self.fix("Clear the gradients under the test that guards the step."))

    def _left_behind(self, view: FileView, conclusion: Conclusion) -> Finding | None:
        """Only where a test of the data ends the iteration; in an accumulation window gradients are to stay."""
        changing = conclusion.changing
        test = None if changing is None or changing.window else _leaving(view, changing.node)
        if changing is None or test is None or _clears_elsewhere(view, conclusion):
            return None
        text = f"The gradients of a batch that is left out{conclusion.when} stay and go into the next step."
        return self.finding(
            view, test.test, text, fix=self.fix("Call optimizer.zero_grad() before leaving the iteration.")
        )


def _clears_each_time(view: FileView, node: ast.AST) -> bool:
    """Whether a loop clears in every iteration, does no step, reads no gradient, and the step comes right after it."""
    loops = view.loops(node)
    if not loops or any(
        isinstance(a, (ast.If, ast.Try)) and loops[0] in view.ancestors(a) for a in view.ancestors(node)
    ):
        return False
    block = view.block(loops[0])
    after = block[block.index(loops[0]) + 1 :] if loops[0] in block else []
    called = {last_name(call.func) for call in ast.walk(loops[0]) if isinstance(call, ast.Call)}
    reads = any(isinstance(inner, ast.Attribute) and inner.attr == "grad" for inner in ast.walk(loops[0]))
    return not reads and not any("step" in name for name in called) and any(_steps(view, stmt) for stmt in after)


def _steps(view: FileView, stmt: ast.stmt) -> bool:
    known = view.memo(facts)
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "step"
        and (known.is_optimizer(last_name(call.func.value)) or known.is_scaler(last_name(call.func.value)))
        for call in ast.walk(stmt)
    )


def _leaving(view: FileView, node: ast.AST | None) -> ast.If | None:
    """The `if` around `node` whose body ends the iteration."""
    tests = [a for a in view.ancestors(node) if isinstance(a, ast.If)] if node is not None else []
    return next((test for test in tests if any(isinstance(stmt, ast.Continue) for stmt in test.body)), None)


def _clears_elsewhere(view: FileView, conclusion: Conclusion) -> bool:
    """Whether something clears gradients in a function that was not walked, or not together with this one."""
    calls: list[ast.AST] = [
        call
        for call in view.nodes(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("clear_grad", "zero_grad", "zero_grads")
    ]
    assigned: list[ast.AST] = [
        target
        for node in view.nodes(ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "grad"
    ]
    walked = conclusion.within if conclusion.again else view.memo(trace).entered
    return any((view.function(node) or view.tree) not in walked for node in (*calls, *assigned))
