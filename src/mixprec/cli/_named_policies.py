"""The policies that have a name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from mixprec._policy import Policy
from mixprec.errors import UnknownNameError

__all__ = ["NAMED", "SUMMARY", "named"]

SUMMARY: Mapping[str, str] = {
    "torch": "PyTorch's own list for the device; the default",
    "uniform": "one list for every device, so that a CPU run rehearses a GPU run",
    "lean": "uniform with less memory: norms and softmax in 16-bit storage, casts shared",
    "careful": "uniform with more in float32",
}

NAMED = tuple(SUMMARY)


def named(name: str, device: str) -> Policy:
    """The policy called `name` for `device`. Raises `UnknownNameError` with the closest names."""
    if name not in SUMMARY:
        raise UnknownNameError("policy", name, NAMED, "`mixprec policy` describes them.")
    return Policy.named(name, device)
