"""The autocast state at one place: which device's list applies, to which dtype, and whether it is on at all."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from mixprec._policy import CastRule, Policy, op_of
from mixprec.lint.dtypes._dtypes import FLOAT32, LOW, Dtypes, one, promote
from mixprec.lint.dtypes._values import Autocast, Tensor

__all__ = ["DEFAULT", "OFF", "OPEN", "Region", "entered", "result", "rule_of"]

VERSION = "2.13"
"""The release whose lists are used: results must not depend on what is installed where the linter runs."""

DEFAULT: frozenset[str] = frozenset()
"""In place of an autocast's dtypes: it was given none, so the device's default counts."""


@dataclass(frozen=True)
class Region:
    """`enabled` None: the caller decides. `dtypes` None: the run decides. `node`: the call that made the region."""

    device: str
    dtypes: Dtypes = None
    enabled: bool | None = True
    cache: bool | None = None
    node: ast.AST | None = field(default=None, compare=False)

    @property
    def line(self) -> int:
        """Where the region was made; 0 where nowhere."""
        return int(getattr(self.node, "lineno", 0))


def OFF(device: str) -> Region:  # noqa: N802  # a constant per device
    """No autocast."""
    return Region(device, enabled=False)


def OPEN(device: str) -> Region:  # noqa: N802  # a constant per device
    """Whatever the caller has."""
    return Region(device, enabled=None)


def entered(autocast: Autocast, around: Region, device: str) -> Region:
    """The state inside `autocast`, on `device` where the script leaves that open.

    A flag that the run decides counts as on. Without a dtype the current one stays, outside the device's default.
    """
    where = autocast.device or device
    dtypes = autocast.dtypes
    if dtypes == DEFAULT:
        inherits = around.enabled is not False and around.device == where
        dtypes = around.dtypes if inherits else one("float16" if where == "cuda" else "bfloat16")
    if dtypes is not None and not dtypes & LOW:  # CUDA casts to float32 then, other devices switch off with a warning
        on = where == "cuda" and dtypes == FLOAT32 and autocast.enabled is not False
        return Region(where, dtypes, on, autocast.cache, autocast.node)
    return Region(where, dtypes, autocast.enabled is not False, autocast.cache, autocast.node)


_COMPOSITES = {"interpolate": "upsample_nearest2d", "upsample": "upsample_nearest2d"}
"""Python functions -> one of the ops that they call, all of which have one rule."""


@functools.cache
def _rules(device: str) -> Mapping[str, CastRule]:
    return Policy.torch(device, version=VERSION).ops


@functools.lru_cache(maxsize=4096)
def rule_of(name: str, device: str) -> CastRule:
    """What autocast does to the op that Python calls `name` on `device`."""
    rules = _rules(device)
    name = _COMPOSITES.get(name, name)
    op = op_of(name)
    return rules.get(name, CastRule.KEEP) if op is None else rules.get(op, CastRule.KEEP)


def result(name: str, tensors: tuple[Tensor | None, ...], region: Region) -> Dtypes:
    """The dtype of an op's result from its tensor operands, None among them for operands that may be anything."""
    rule = rule_of(name, region.device)
    if region.enabled and rule is not CastRule.KEEP:
        return _cast(rule, tensors, region)
    kept = _promoted(tensors)
    if region.enabled is None and rule in (CastRule.FP32, CastRule.FP32_OUT, CastRule.BANNED):
        return kept if kept == FLOAT32 else None
    if region.enabled is None and rule in (CastRule.LOW, CastRule.WIDEST):
        return kept if kept is not None and kept <= LOW else None
    return kept


def _cast(rule: CastRule, tensors: tuple[Tensor | None, ...], region: Region) -> Dtypes:
    """Of an op that autocast touches. Float64 and integers stay out of it."""
    known = [tensor.dtypes for tensor in tensors if tensor is not None]
    wide = any(dtypes is not None and "float64" in dtypes for dtypes in known)
    if wide:
        return None
    if rule is CastRule.LOW:
        return region.dtypes
    if rule in (CastRule.FP32, CastRule.FP32_OUT):
        first = known[0] if known else None
        floating = first is None or bool(first & (LOW | FLOAT32))
        return FLOAT32 if floating else None
    if rule is CastRule.WIDEST:
        if None in known or len(known) < len(tensors):
            return None
        return FLOAT32 if any(dtypes == FLOAT32 for dtypes in known) else _promoted(tensors)
    return None


def _promoted(tensors: tuple[Tensor | None, ...]) -> Dtypes:
    if not tensors or any(tensor is None for tensor in tensors):
        return None
    known = [tensor for tensor in tensors if tensor is not None]
    current, rank0 = known[0].dtypes, known[0].rank0
    for tensor in known[1:]:
        current = promote(current, tensor.dtypes, (rank0, tensor.rank0))
        rank0 = rank0 if rank0 == tensor.rank0 else (False if False in (rank0, tensor.rank0) else None)
    return current
