"""`python -m mixprec._script.main SCRIPT [ARGS]` is `python SCRIPT [ARGS]` with another text for the script's file.

The startup file makes a process this one where `replace` names its script: Python reads a main script in C, where
nothing can be put in its place.
"""

from __future__ import annotations

import linecache
import os
import sys
import types

__all__ = ["run"]


def run(path: str) -> None:
    """Executes the replaced text of `path` as `__main__`."""
    from mixprec._script import child

    text = child.replaced(path)
    assert text is not None
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(path))
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    del sys.argv[0]
    run(sys.argv[0])
