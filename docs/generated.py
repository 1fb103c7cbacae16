"""A generated file is what its generator writes now: written by `run`, and told when it is not.

Each generator is a script with `outputs() -> {path: text}`; run it to write, with `--check` to be told what is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["between", "run", "stale"]

Outputs = Callable[[], Mapping[Path, str]]


def between(text: str, name: str, content: str) -> str:
    """`text` with what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->` replaced by `content`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no pair of marks '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


def stale(outputs: Outputs) -> list[Path]:
    """The files that are missing or differ from what would be written."""
    wanted = outputs().items()
    return sorted(path for path, text in wanted if not path.exists() or path.read_text(encoding="utf-8") != text)


def run(outputs: Outputs, arguments: list[str]) -> int:
    """Write what differs, or with `--check` name it and return 1."""
    different = stale(outputs)
    for path in different:
        print(path)
    if "--check" in arguments:
        return 1 if different else 0
    wanted = outputs() if different else {}
    for path in different:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return 0
