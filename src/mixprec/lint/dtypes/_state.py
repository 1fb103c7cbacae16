"""What a walk through a file knows at a moment: the region, the open branches, and everything that happened so far."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mixprec.lint.dtypes._dtypes import Dtypes, union
from mixprec.lint.dtypes._joins import join
from mixprec.lint.dtypes._region import OFF, Region
from mixprec.lint.dtypes._values import Instance, Tensor, Value, number_of

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["MOST_STEPS", "Event", "Exhausted", "Site", "State"]

MOST_STEPS = 6_000
"""Statements and calls after which a walk gives up; what it saw until then still counts."""


class Exhausted(Exception):  # noqa: N818  # not an error: the walk ends early
    """The walk has used its budget."""


@dataclass(frozen=True)
class Event:
    """Something happened to values: an op ran, an optimizer was made, a scaler stepped.

    `op` is the op's name as Python says it, without the underscore of an in-place form, or one of the other kinds:
    `setitem`, `optimizer`, `scaler.step`, `scaler.unscale_`, `thread`, `island`, `call`. `args` are the values it was
    given (the receiver of a method first), `result` what came out. `no_grad` is None where the caller decides.
    `backward`: inside the backward of an autograd function. `module`: the module whose layer it is, where it is one.
    """

    op: str
    node: ast.AST
    region: Region
    args: tuple[Value, ...] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    result: Value | None = None
    inplace: bool = False
    no_grad: bool | None = False
    backward: bool = False
    module: Instance | None = None

    def value(self, place: int = 0) -> Value | None:
        """The argument at `place`; None where there is none."""
        return self.args[place] if place < len(self.args) else None

    def tensor(self, place: int = 0) -> Tensor | None:
        """The argument at `place`, where it is a tensor."""
        value = self.value(place)
        return value if isinstance(value, Tensor) else None

    def number(self, place: int) -> float | None:
        """The argument at `place`, where it is a known Python number."""
        value = self.value(place)
        return None if value is None else number_of(value)

    @property
    def out(self) -> Tensor | None:
        """The result, where it is a tensor."""
        return self.result if isinstance(self.result, Tensor) else None


@dataclass(frozen=True)
class Site:
    """A place in another file, `path` and `line`, and the `call` of the linted file that leads there."""

    call: ast.AST
    path: str
    line: int


class State:
    """One walk. `device` stands for a device that the script leaves open; `open_device` notes that this mattered."""

    def __init__(self, view: FileView, device: str) -> None:
        self.view = view
        self.device = device
        self.open_device = False
        self.region: Region = OFF(device)
        self.no_grad: bool | None = False
        self.backward = False
        self.branch: tuple[int, ...] = ()
        self.events: list[Event] = []
        self.steps = 0
        self.version = 0
        self.branches = 0
        self.products = 0
        """Matrix products that ran where autocast is off."""
        self.trained_products = 0
        """Those of them that have a parameter among their operands."""
        self.site: ast.AST | None = None
        """The call of the linted file that led into another file; None while the walk is not in another file."""
        self.sites: dict[int, Site] = {}
        """For nodes of other files, by identity: where the linted file leads there."""
        self.effects = 0
        """Everything that a region may have had an effect on."""

    def step(self) -> None:
        """Count one; raises `Exhausted` beyond the budget."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Exhausted

    def emit(self, event: Event, view: FileView) -> None:
        """Note an event. What happens in another file counts where the linted one calls into it, else not at all."""
        if view is self.view:
            self.events.append(event)
        elif self.site is not None:
            node = copy.copy(event.node)  # a node of its own: the same op may be reached from several calls
            self.events.append(replace(event, node=node))
            self.sites[id(node)] = Site(self.site, view.path, int(getattr(node, "lineno", 0)))

    # --- regions and branches

    @contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """For as long as `region` is the current one."""
        before, self.region = self.region, region
        try:
            yield
        finally:
            self.region = before

    @contextmanager
    def grad_mode(self, no_grad: bool | None) -> Iterator[None]:
        """For as long as gradients are off, on, or as the caller has them."""
        before, self.no_grad = self.no_grad, no_grad
        try:
            yield
        finally:
            self.no_grad = before

    @contextmanager
    def open_branch(self) -> Iterator[None]:
        """For as long as it is open whether this code runs: what it changes outside may or may not have changed."""
        before = self.branch
        self.branches += 1
        self.branch = (*before, self.branches)
        try:
            yield
        finally:
            self.branch = before

    # --- objects

    def certain(self, instance: Instance) -> bool:
        """Whether a change of `instance` happens for sure: it was made in the branch that is current."""
        return instance.branch[: len(self.branch)] == self.branch

    def assign(self, instance: Instance, name: str, value: Value) -> None:
        """`instance.name = value`."""
        old = instance.attributes.get(name)
        new = value if self.certain(instance) or old is None else join(old, value)
        if old is None or old != new:
            self.version += 1
            instance.attributes[name] = new

    def retype(self, instance: Instance, dtypes: Dtypes, how: str, node: ast.AST | None) -> None:
        """Convert the instance's own weights at `node`."""
        new = dtypes if self.certain(instance) else union(instance.dtypes, dtypes)
        if new != instance.dtypes:
            self.version += 1
            instance.dtypes = new
        if how:
            instance.converted, instance.source = how, node
