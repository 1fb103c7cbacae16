"""A module is named by its path from the outermost module that is called, without what wrappers add.

The recorder, the interventions and the tracer name a module alike.
"""

from __future__ import annotations

import weakref

from torch import nn

__all__ = ["ModuleNames"]

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_ROOT_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")


class ModuleNames:
    """Learns names when an outermost module is first called; holds no module alive."""

    def __init__(self) -> None:
        self._paths: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakKeyDictionary[nn.Module, frozenset[int]] = weakref.WeakKeyDictionary()

    def learn(self, root: nn.Module) -> list[tuple[str, nn.Module]]:
        """Names `root` and all below it; those that are new."""
        if root in self._paths:
            return []
        strip = type(root).__name__ in _ROOT_WRAPPERS
        fresh = [(_own(path, strip), part) for path, part in root.named_modules() if part not in self._paths]
        self._paths.update({part: path for path, part in fresh})
        self._roots[root] = frozenset()
        return fresh

    def path(self, module: nn.Module) -> str:
        """The module's path; empty for an outermost one."""
        if module not in self._paths:
            self.learn(module)
        return self._paths[module]

    def roots(self) -> list[nn.Module]:
        """The outermost modules that still exist."""
        return list(self._roots)

    def below(self, outer: nn.Module, inner: nn.Module) -> bool:
        """Whether `inner` can be running inside `outer`: it is a part of it, or nobody's outermost module yet."""
        if inner in self._roots:
            return False
        return inner not in self._paths or self._paths[inner].startswith(self._paths.get(outer, ""))


def _own(path: str, strip: bool) -> str:
    parts = [part for part in path.split(".") if part not in _WRAPPERS]
    return ".".join(parts[1:] if strip and parts[:1] == ["module"] else parts)
