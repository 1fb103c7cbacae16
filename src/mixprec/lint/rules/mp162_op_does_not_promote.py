"""Index assignment and scatter neither cast nor promote: source and destination must have one dtype."""

from __future__ import annotations

from collections.abc import Iterator

from mixprec._policy import CastRule
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import SOURCES, Event, Hit, Items, Tensor, Trace, Value, dtype_words, held, rule_of
from mixprec.records import Finding, Severity


class OpDoesNotPromote(Rule):
    """`buffer[mask] = layer(x)` where `buffer` is float32 and the layer's output has 16 bits."""

    code = "MP162"
    name = "op-does-not-promote"
    severity = Severity.ERROR
    title = "An op that needs one dtype writes a 16-bit tensor into a float32 tensor, or the reverse."
    why = "Index assignment, scatter, index_add and lerp raise on different dtypes; autocast casts only few of them."
    bad = """\
import torch

buffer = torch.zeros(16, 8)
weight = torch.ones(8, 8)


def write(x):
    with torch.autocast("cuda", dtype=torch.float16):
        buffer[torch.arange(4)] = x @ weight
"""
    good = """\
import torch

buffer = torch.zeros(16, 8)
weight = torch.ones(8, 8)


def write(x):
    with torch.autocast("cuda", dtype=torch.float16):
        buffer[torch.arange(4)] = (x @ weight).to(buffer.dtype)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://github.com/pytorch/pytorch/issues/41036",
        "https://github.com/pytorch/pytorch/issues/51730",
    )

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per write."""
        for hit in held(view, _writes):
            advice = "Convert the source: src.to(dst.dtype), or allocate the destination with dtype=src.dtype."
            yield self.finding(view, hit.node, hit.message, fix=self.fix(advice))


def _writes(trace: Trace) -> Iterator[Hit]:
    for event in trace.of("setitem", *SOURCES):
        destination = event.tensor()
        source = _source(event)
        if not isinstance(destination, Tensor) or not isinstance(source, Tensor) or source.rank0:
            continue
        if _differ(destination, source) and not _promotes(event):
            words = dtype_words(source.dtypes), dtype_words(destination.dtypes)
            yield Hit(
                event.node, f"A {words[0]} tensor is written into a {words[1]} one, and {event.op} does not convert."
            )


def _source(event: Event) -> Value | None:
    if event.op == "setitem":
        index = event.value(1)
        return event.value(2) if index is not None and _is_advanced(index) else None
    place, keyword = SOURCES[event.op]
    return event.keywords.get(keyword, event.args[place] if place < len(event.args) else None)


def _is_advanced(place: Value) -> bool:
    """Whether an index is a mask or a tensor of places; slices and numbers make a view, and a view converts."""
    parts = place.items if isinstance(place, Items) and place.items is not None else (place,)
    return any(isinstance(part, Tensor) and (part.only("bool") or part.rank0 is False) for part in parts)


def _differ(first: Tensor, second: Tensor) -> bool:
    """Whether one has 16 bits and the other is float32, in every run."""
    return (first.low and second.only("float32")) or (second.low and first.only("float32"))


def _promotes(event: Event) -> bool:
    if event.op == "setitem" or event.inplace or event.region.enabled is False:
        return False
    return rule_of(event.op, event.region.device) is CastRule.WIDEST
