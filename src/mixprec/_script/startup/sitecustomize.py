"""Python imports this file at start, because its folder is first on PYTHONPATH; it waits for torch and does no more.

It is also imported by interpreters that know nothing of mixprec (helpers that the script starts), so it uses nothing
but the standard library, starts the `sitecustomize` that it shadows, and never raises.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost every helper that the script starts a few milliseconds
    from collections.abc import Callable
    from typing import Any

_VARIABLE = "MIXPREC_SCRIPT"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _WhenTorchIsImported:
    """A finder that finds nothing itself: torch, found by the others, calls `start` once its own code has run."""

    def __init__(self, start: Callable[[], None]) -> None:
        self.start = start

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of torch with a loader that calls `start` afterwards; None for everything else."""
        if name != "torch":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _call_after(spec.loader, self.start)
                return spec
        return None


def _call_after(loader: Any, start: Callable[[], None]) -> None:
    """Make `loader` call `start` when it has executed its module, once."""
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        del loader.exec_module
        execute(module)
        start()

    loader.exec_module = exec_module


def _start() -> None:
    """Hand over to mixprec, where this interpreter has it; a failure is left for the parent to read."""
    folder = os.environ.get(_VARIABLE, "")
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WhenTorchIsImported)]
    try:
        from mixprec._script import child

        child.start(folder)
    except Exception:
        import contextlib
        import traceback

        with contextlib.suppress(OSError), open(os.path.join(folder, f"error-{os.getpid()}.txt"), "a") as file:
            traceback.print_exc(file=file)


def _replace(texts_file: str) -> None:
    """Files that have another text in this run are read as that: the main script, modules, and what a process that
    multiprocessing spawned runs of its parent's main script.
    """
    import json

    with open(texts_file, encoding="utf-8") as file:
        texts = json.load(file)
    _replace_script(texts)
    _replace_modules(texts)
    _replace_spawned(texts)


def _replace_script(texts: dict[str, str]) -> None:
    """Python reads a main script in C: where it has another text, this process becomes one that runs that instead."""
    if not sys.argv or os.path.realpath(sys.argv[0]) not in texts or importlib.util.find_spec("mixprec") is None:
        return
    options = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv)]
    os.execv(sys.executable, [*options, "-m", "mixprec._script.main", *sys.argv])


def _replace_modules(texts: dict[str, str]) -> None:
    """Whatever is cached of a module, its other text counts."""
    from importlib.machinery import SourceFileLoader

    get_code: Any = SourceFileLoader.get_code

    def get_replaced(loader: Any, fullname: str) -> Any:
        path = os.path.realpath(loader.get_filename(fullname))
        return compile(texts[path], path, "exec", dont_inherit=True) if path in texts else get_code(loader, fullname)

    SourceFileLoader.get_code = get_replaced  # type: ignore[assignment,method-assign] # what this file is for


def _replace_spawned(texts: dict[str, str]) -> None:
    """`multiprocessing.spawn` runs the main script of its parent through `runpy.run_path`."""
    import runpy

    get_code: Any = runpy._get_code_from_file  # type: ignore[attr-defined] # private, the same from 3.10 to 3.13 but for its arguments

    def get_replaced(*names: str) -> Any:
        path = os.path.realpath(names[-1])
        if path not in texts:
            return get_code(*names)
        code = compile(texts[path], names[-1], "exec", dont_inherit=True)
        return code if len(names) == 1 else (code, names[-1])

    runpy._get_code_from_file = get_replaced  # type: ignore[attr-defined] # as above


def _chain() -> None:
    """Run the `sitecustomize` that would have been imported without this file."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.path.isdir(os.environ.get(_VARIABLE, "")):
    if os.path.exists(os.path.join(os.environ[_VARIABLE], "replace.json")):
        _replace(os.path.join(os.environ[_VARIABLE], "replace.json"))
    if "torch" in sys.modules:
        _start()
    else:
        sys.meta_path.insert(0, _WhenTorchIsImported(_start))
_chain()
