"""The exception that ends a process, with what can still be seen of where it was raised."""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from torch import Tensor, nn

from mixprec._trace import is_user_file
from mixprec.doctor._arm import Crash
from mixprec.doctor._names import ModuleNames
from mixprec.doctor._recorder._numbers import stats
from mixprec.doctor._recorder._quiet import quiet
from mixprec.doctor._recorder._regions import Regions
from mixprec.doctor._recorder._scene import Scene
from mixprec.records import Location, TensorStats

__all__ = ["crash_of", "watch_exceptions"]

CONSEQUENCES = ("ProcessRaisedException", "ProcessExitedException", "ChildFailedError")
"""What a parent raises because a child failed: the child tells the cause."""

_PACKAGE = str(Path(__file__).parents[2])

Report = Callable[[BaseException], None]


def watch_exceptions(report: Report) -> None:
    """`report` hears of the exception that ends the main thread, another thread, or a multiprocessing child."""
    hook, thread_hook = sys.excepthook, threading.excepthook

    def in_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        report(error)
        hook(kind, error, trace)

    def in_thread(args: Any) -> None:
        if args.exc_value is not None:
            report(args.exc_value)
        thread_hook(args)

    sys.excepthook, threading.excepthook = in_main, in_thread
    _watch_children(report)


def _watch_children(report: Report) -> None:
    """A multiprocessing child never reaches `sys.excepthook`; `torch.multiprocessing.spawn` catches even earlier."""
    from multiprocessing.process import BaseProcess

    spawn: Any = importlib.import_module("torch.multiprocessing.spawn")  # the package has a function of that name

    run = BaseProcess.run
    wrap: Any = spawn._wrap

    def told_run(process: BaseProcess) -> None:
        try:
            run(process)
        except Exception as error:
            report(error)
            raise

    def _wrap(fn: Any, i: int, args: Any, error_file: Any) -> Any:
        def told(*given: Any) -> Any:
            try:
                return fn(*given)
            except Exception as error:
                report(error)
                raise

        return wrap(told, i, args, error_file)

    _wrap.__module__, _wrap.__qualname__ = wrap.__module__, wrap.__qualname__  # pickled by name
    BaseProcess.run = told_run  # type: ignore[assignment,method-assign] # a tap
    spawn._wrap = _wrap


def crash_of(error: BaseException, scene: Scene, regions: Regions, names: ModuleNames) -> Crash | None:
    """`error` as a record; None where it only tells that another process failed."""
    if type(error).__name__ in CONSEQUENCES or isinstance(error, (SystemExit, KeyboardInterrupt)):
        return None
    frames = list(_frames(error))
    module = _innermost_module(frames)
    named = dict(_tensors(frames, module))
    return Crash(
        kind=type(error).__name__,
        message=str(error)[:4000],
        frames=tuple(Location(file=f.f_code.co_filename, line=line) for f, line in frames if _is_user(f)),
        raised_in=f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]} in {frames[-1][0].f_code.co_name}"
        if frames
        else "",
        traceback=_without_us(error)[-8000:],
        iteration=scene.iteration,
        in_region=regions.around(error),
        in_backward=any(f.f_code.co_name == "_engine_run_backward" for f, _ in frames),
        module=None if module is None else names.path(module),
        module_kind=None if module is None else type(module).__name__,
        tensors=tuple(named.values()),
        names=tuple(named),
        rank=scene.writer.rank,
    )


def _without_us(error: BaseException) -> str:
    """The traceback as the script would have shown it, without the frames of taps."""
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list([f for f in told.stack if not f.filename.startswith(_PACKAGE)])
    return "".join(told.format())


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_user(frame: FrameType) -> bool:
    return is_user_file(frame.f_code.co_filename)


def _innermost_module(frames: list[tuple[FrameType, int]]) -> nn.Module | None:
    """The module whose call was running, from the frames that torch's `__call__` left in the traceback."""
    for frame, _ in reversed(frames):
        if frame.f_code.co_name == "_call_impl":
            module = frame.f_locals.get("self")
            return module if isinstance(module, nn.Module) else None
    return None


def _tensors(frames: list[tuple[FrameType, int]], module: nn.Module | None) -> Iterator[tuple[str, TensorStats]]:
    """Tensors by name on the innermost line of the user's, and in the innermost frame of all; up to 12."""
    found: dict[str, Tensor] = {}
    mine = next(((f, line) for f, line in reversed(frames) if _is_user(f)), None)
    if mine is not None:
        found.update(_on_line(*mine))
    if frames:
        found.update({k: v for k, v in frames[-1][0].f_locals.items() if isinstance(v, Tensor)})
    if module is not None:
        found.update({f"self.{name}": p for name, p in module.named_parameters(recurse=False)})
        found.update({f"self.{name}": b for name, b in module.named_buffers(recurse=False)})
    for name, tensor in list(found.items())[:12]:
        try:
            with quiet():
                yield name, stats(tensor)
        except Exception:
            continue


def _on_line(frame: FrameType, line: int) -> Iterator[tuple[str, Tensor]]:
    """Tensors that the statement at `line` names, looked up without calling anything."""
    tree = _statement(frame.f_code.co_filename, line)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = _value(node, frame)
            if isinstance(value, Tensor):
                yield ast.unparse(node), value


def _statement(file: str, line: int) -> ast.AST | None:
    """The innermost statement of the file that covers `line`."""
    try:
        tree = ast.parse(textwrap.dedent("".join(linecache.getlines(file))))
    except SyntaxError:
        return None
    covering = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(covering, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of an attribute that is stored in its object."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        if isinstance(owner, nn.Module):
            stores: tuple[dict[str, Any], ...] = (vars(owner), owner._parameters, owner._buffers, owner._modules)
            return next((store[node.attr] for store in stores if node.attr in store), None)
        return getattr(owner, "__dict__", {}).get(node.attr) if owner is not None else None
    return None
