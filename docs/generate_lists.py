"""Write PyTorch's autocast lists, as the policies hold them, into docs/how-it-works/autocast.md.

Run: python docs/generate_lists.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from generated import between, run

from mixprec import Policy

PAGE = Path(__file__).parent / "how-it-works" / "autocast.md"
WORDS = {
    "low": "cast to 16 bits",
    "fp32": "cast to float32",
    "fp32_out": "inputs as they are, result in float32",
    "widest": "cast to the widest of the inputs",
    "banned": "an error",
}


def lists() -> str:
    """One list per rule: which ops have it on CUDA and CPU, and which on one of them."""
    cuda, cpu = (Policy.torch(device).ops for device in ("cuda", "cpu"))
    lines: list[str] = []
    for rule, words in WORDS.items():
        there, here = ({op for op, r in ops.items() if r.value == rule} for ops in (cuda, cpu))
        groups = {"on both": there & here, "only on CUDA": there - here, "only on CPU": here - there}
        lines += [f"**{rule}**: {words}", ""]
        lines += [f"- {where}, {len(ops)}: {_named(ops)}" for where, ops in groups.items() if ops]
        lines.append("")
    return "\n".join(lines).rstrip()


def _named(ops: set[str]) -> str:
    return ", ".join(f"`{op}`" for op in sorted(ops))


def counts() -> str:
    """How many ops the lists have, and how many have the same rule on both."""
    cuda, cpu = (Policy.torch(device).ops for device in ("cuda", "cpu"))
    same = sum(cpu.get(op) is rule for op, rule in cuda.items())
    return f"CUDA's list has {len(cuda)} ops, the CPU's {len(cpu)}; {same} ops have the same rule on both."


def outputs() -> Mapping[Path, str]:
    """The page with its lists."""
    text = PAGE.read_text(encoding="utf-8")
    return {PAGE: between(between(text, "lists", lists()), "counts", counts())}


if __name__ == "__main__":
    sys.exit(run(outputs, sys.argv[1:]))
