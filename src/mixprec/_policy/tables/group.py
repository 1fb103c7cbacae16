"""A table is groups of ops that share a rule, a reason and a source; a version chooses which groups are in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mixprec._policy.rule import CastRule

__all__ = ["SOURCES", "Group", "release", "rows"]

_REPOSITORY = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen"
SOURCES = MappingProxyType(
    {
        "header": f"{_REPOSITORY}/autocast_mode.h",
        "cpp": f"{_REPOSITORY}/autocast_mode.cpp",
        "cudnn": f"{_REPOSITORY}/cudnn/AutocastRNN.cpp",
    }
)
"""Where PyTorch's own lists stand: the op lists that devices share, and each device's registrations."""


@dataclass(frozen=True)
class Group:
    """Ops (names separated by blanks) with one rule.

    `since` is the first PyTorch release whose list has them and `until` the first that has them no longer; empty:
    all of 2.6 to today. `replacement` says what to write instead of a banned op. `only` marks ops without a kernel
    in 16 bits on that device: a base list cannot lower them there. `parts` marks ops that PyTorch does not list but
    builds from listed ones in C++, so that they behave as listed: `square` is `pow`.
    """

    rule: CastRule
    ops: str
    reason: str
    source: str
    since: str = ""
    until: str = ""
    replacement: str = ""
    only: bool = False
    parts: str = ""


def rows(groups: Iterable[Group], version: str = "") -> Mapping[str, Group]:
    """Op -> its group, as of that PyTorch release (empty: the newest). A later group overrides an earlier one."""
    at = release(version) if version else (9999, 0)
    current = [g for g in groups if release(g.since) <= at < (release(g.until) if g.until else (10000, 0))]
    return MappingProxyType({op: group for group in current for op in group.ops.split()})


def release(version: str) -> tuple[int, int]:
    """Major and minor of a version string: "2.13.0+cpu" -> (2, 13); (0, 0) where there is none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
