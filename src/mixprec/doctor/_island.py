"""The smallest set of modules whose float32 cures a step: none of them can be left out or given for a part of it.

A pure search over the tree of module calls. It asks from the module where numbers broke outwards until one module is
enough, then goes inwards again, into the parts that were called in it, by bisection, until none can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

__all__ = ["Passes", "outward", "smallest"]

Passes = Callable[[tuple[str, ...]], bool]
"""Whether the step is healthy with these modules in float32."""


def outward(tree: Mapping[str, Sequence[str]], path: str) -> list[str]:
    """`path` and the modules that it was called in, innermost first. `tree`: module to those called directly in it."""
    found = [path]
    while (outer := next((p for p, parts in tree.items() if found[-1] in parts and p not in found), None)) is not None:
        found.append(outer)
    return found


def smallest(tree: Mapping[str, Sequence[str]], near: str, passes: Passes) -> tuple[str, ...] | None:
    """Modules that are enough; None where even the outermost is not. The outermost alone means: its own code.

    **Cost** calls of `passes`: the depth of `near`, then about `k * (log2(n) + 1)` per level of the tree, where `k` of
    `n` parts are needed.
    """
    enough = next((path for path in outward(tree, near) if passes((path,))), None)
    if enough is None:
        return None
    chosen: tuple[str, ...] = (enough,)
    waiting = [enough]
    while waiting:
        node = waiting.pop(0)
        parts = tuple(dict.fromkeys(tree.get(node, ())))
        at = chosen.index(node)
        before, after = chosen[:at], chosen[at + 1 :]
        if parts and passes((*before, *parts, *after)):  # else what the node does between its parts matters
            needed = _needed(parts, _between(before, after, passes))
            chosen, waiting = (*before, *needed, *after), [*waiting, *needed]
    return chosen


def _between(before: tuple[str, ...], after: tuple[str, ...], passes: Passes) -> Passes:
    return lambda some: passes((*before, *some, *after))


def _needed(parts: tuple[str, ...], passes: Passes) -> tuple[str, ...]:
    """A smallest subset that passes, given that all do.

    The last part of the shortest beginning that passes is needed, whatever else is: half a beginning passes or not.
    Where more float32 makes worse what less of it cured, all parts may be returned.
    """
    needed: tuple[str, ...] = ()
    rest = parts
    while rest:
        few, many = 0, len(rest)
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if passes((*needed, *rest[:middle])) else (middle, many)
        needed, rest = (*needed, rest[many - 1]), rest[: many - 1]
        if passes(needed):
            return tuple(part for part in parts if part in needed)
    return parts
