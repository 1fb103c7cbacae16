"""Every op of a step as it ran, forward, recompute, backward and optimizer, without holding a tensor of it.

A dispatch mode sees each op below autograd and autocast. A backward op belongs to the line of its forward op: both
carry the sequence number of the same autograd node. Inside the mode an op's output has no node yet, but the node's
number is the last that was given out (as `torch.fx.proxy` relies on,
https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/proxy.py); the first op to claim a number keeps it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from mixprec._trace._calls import Call, Calls
from mixprec._trace._exact import exactly
from mixprec._trace._flow import Flow
from mixprec._trace._frames import Asked, asked, in_compiled_function
from mixprec._trace._measure import Measured, measure, settle
from mixprec._trace._modules import Here, ModuleStack
from mixprec._trace._schema import Schema, schema_of
from mixprec.records import Location, OpRecord, TensorStats

__all__ = ["Tracer"]

_BATCH = 512
"""Ops whose numbers are read from a device together."""

_ACCUMULATE = 2**64 - 1
"""The sequence number of every AccumulateGrad node."""


class _Place(NamedTuple):
    """Where an op belongs, as its backward needs it."""

    file: str | None
    line: int | None
    here: Here
    call: Call
    op: str


@dataclass
class _Entry:
    """One op, and its numbers while they may still be on a device."""

    schema: Schema
    record: OpRecord
    inputs: tuple[Measured, ...]
    outputs: tuple[Measured, ...] = ()
    exact: tuple[Measured, ...] = ()

    @property
    def measured(self) -> tuple[Measured, ...]:
        return (*self.inputs, *self.outputs, *self.exact)

    @property
    def finite(self) -> bool:
        return all(one.stats.finite for one in (*self.inputs, *self.outputs))

    def settled(self) -> OpRecord:
        inputs, outputs, exact = (tuple(m.stats for m in some) for some in (self.inputs, self.outputs, self.exact))
        cast = self.schema.casts(inputs, outputs)
        return dataclasses.replace(self.record, inputs=inputs, outputs=outputs, exact=exact, cast=cast)


@dataclass
class _Thread(threading.local):
    """What one thread is in the middle of."""

    stepping: int = 0
    reentrant: dict[int, _Place] = field(default_factory=dict)


class Tracer:
    """Records the ops that run inside its `with` block, one step of training as a rule.

    - `model` gives module paths their root; without it the outermost module that is called is one.
    - `statistics=False` counts zeros, subnormals and smallest magnitudes only of tensors that hold Inf or NaN (CPU).
    - `keep="bad"` keeps the records of ops with Inf or NaN among inputs or outputs, `keep="all"` all of them.
    - `exact=True` computes every 16-bit op a second time in float32 and records what its outputs would have held
      there (`OpRecord.exact`); on the CPU an op that turns finite inputs into Inf or NaN always has it.

    Views (`t`, `expand`, slices) change no number and leave no record, nor do the ops of a monitor that watches.
    `records` is complete after the block, and may be read inside it; `failed` is the op that raised last, without
    outputs, or None.

    torch runs compiled functions eagerly inside a dispatch mode, so what is found there is found in eager mode.
    `compiled` says whether one was called.

    **Cost** per op a walk over its frames, and per operand that was written since it was read last: on the CPU 1 to 9
    kernels, elsewhere about 25, with one sync per 512 ops. `exact` runs every 16-bit op once more in float32. No tensor
    is kept alive.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        statistics: bool = True,
        keep: Literal["bad", "all"] = "bad",
        exact: bool = False,
    ) -> None:
        self.failed: OpRecord | None = None
        self.compiled = False
        self._counts = statistics
        self._keep_all = keep == "all"
        self._exact = exact
        self._modules = ModuleStack(model)
        self._calls = Calls()
        self._flow = Flow()
        self._records: list[OpRecord] = []
        self._entries: list[_Entry] = []
        self._seen: set[tuple[str | None, int | None, str]] = set()
        self._places: dict[int, _Place] = {}
        self._thread = _Thread()
        self._index = 0
        self._paused = False
        self._stack: contextlib.ExitStack | None = None

    def __enter__(self) -> Tracer:
        with contextlib.ExitStack() as stack:
            self._modules.start()
            stack.callback(self._modules.stop)
            for hook in (
                register_optimizer_step_pre_hook(self._step_begins),
                register_optimizer_step_post_hook(self._step_ends),
            ):
                stack.callback(hook.remove)
            stack.enter_context(self._calls)
            stack.enter_context(_Mode(self._run))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        stack, self._stack = self._stack, None
        assert stack is not None
        stack.__exit__(*error)
        self._thread.stepping = 0

    @property
    def records(self) -> tuple[OpRecord, ...]:
        """The kept records in the order in which the ops ran. **Cost** one sync where numbers are on a device."""
        self._settle()
        return tuple(self._records)

    @property
    def ops(self) -> int:
        """How many ops were recorded, kept or not."""
        return self._index

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Ops inside are run and not recorded; numbers that they write are taken for given."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """A closure that the step is given is forward and backward, as ever (Lightning trains in one)."""
        self._thread.stepping = 1
        if not any(map(callable, (*args, *kwargs.values()))):
            return None
        return tuple(map(self._beside, args)), {name: self._beside(value) for name, value in kwargs.items()}

    def _beside(self, closure: Any) -> Any:
        """`closure`, in which the optimizer's phase is suspended; anything else as it is."""
        if not callable(closure):
            return closure

        @functools.wraps(closure)
        def beside(*args: Any, **kwargs: Any) -> Any:
            before, self._thread.stepping = self._thread.stepping, 0
            try:
                return closure(*args, **kwargs)
            finally:
                self._thread.stepping = before

        return beside

    def _step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._thread.stepping = 0

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one op between the measurement of its inputs and of its outputs."""
        schema = schema_of(func)
        if schema is None or self._paused:
            return func(*args, **kwargs)
        node = torch._C._current_autograd_node()
        who = asked(backward=node is not None)
        if who.watcher:
            return func(*args, **kwargs)
        place = self._place(node, who, schema.name)
        if schema.view:
            return func(*args, **kwargs)
        operands = schema.operands(args, kwargs)
        entry = _Entry(
            schema,
            dataclasses.replace(
                self._describe(schema, node, who, place, args, kwargs),
                names=tuple(name for name, _, _ in operands),
                sources=tuple(self._flow.writer(tensor) for _, tensor, _ in operands),
            ),
            tuple(self._read(tensor, read) for _, tensor, read in operands),
        )
        del node, operands
        try:
            result = func(*args, **kwargs)
        except Exception:
            settle(entry.measured)
            self.failed = entry.settled()
            raise
        self._conclude(entry, args, kwargs, result)
        return result

    def _conclude(self, entry: _Entry, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Measures what the op wrote and keeps the entry."""
        written = entry.schema.written(args, kwargs, result)
        for tensor in written:
            self._flow.wrote(tensor, entry.record.index)
        entry.outputs = tuple(self._read(tensor, not entry.schema.uninitialised) for tensor in written)
        if self._exact or _turns_bad(entry):
            entry.exact = tuple(measure(tensor) for tensor in exactly(entry.schema, args, kwargs, result))
        self._entries.append(entry)
        if len(self._entries) >= _BATCH:
            self._settle()

    def _read(self, tensor: Tensor, read: bool) -> Measured:
        """The numbers of a tensor, measured once per writing of its memory."""
        if not read:
            return Measured(TensorStats(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.numel()))
        known = self._flow.known(tensor)
        if known is None:
            known = measure(tensor, self._counts)
            self._flow.learn(tensor, known)
        return known

    def _settle(self) -> None:
        entries, self._entries = self._entries, []
        settle({id(one): one for entry in entries for one in entry.measured}.values())
        self._records += [entry.settled() for entry in entries if self._keep_all or not entry.finite]

    def _place(self, node: Any, who: Asked, op: str) -> _Place:
        """Where the op belongs: in backward where its forward op did, unless user code runs inside the engine."""
        if node is None or who.recompute:
            place = _Place(who.file, who.line, self._modules.here(), self._calls.current, op)
            self._claim(place, who)
            if (who.file, who.line, op) not in self._seen:
                self._seen.add((who.file, who.line, op))
                self.compiled = self.compiled or in_compiled_function()
            return place
        places = self._thread.reentrant if who.reentrant else self._places
        number = node._sequence_nr()
        owner = self._modules.owner(getattr(node, "variable", None)) if number == _ACCUMULATE else None
        place = places.get(number, _Place(None, None, Here(owner and owner.rpartition(".")[0], None), Call(), ""))
        if who.file is not None:
            place = place._replace(file=who.file, line=who.line)
        if torch.is_grad_enabled():  # `create_graph`: what this op made has a backward of its own
            self._places.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
        return place

    def _claim(self, place: _Place, who: Asked) -> None:
        """Notes the place under the number of the node that autograd made for this op, if it made one."""
        number = torch._C._autograd._get_sequence_nr() - 1
        if not who.recompute:
            self._places.setdefault(number, place)
        elif who.reentrant:
            self._thread.reentrant.setdefault(number, place)

    def _describe(
        self, schema: Schema, node: Any, who: Asked, place: _Place, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> OpRecord:
        """Everything about the op but its operands."""
        index, self._index = self._index, self._index + 1
        return OpRecord(
            op=schema.name,
            phase=self._phase(node, who),
            location=Location(file=place.file, line=place.line, module=place.here.path, op=schema.name),
            index=index,
            scalars=schema.scalars(args, kwargs),
            module_class=place.here.kind,
            call=place.call.name,
            node=None if node is None else str(node.name()).rpartition("::")[2],
            forward_op=None if node is None or who.recompute else place.op or None,
            autocast=place.call.autocast_on(schema.device(args, kwargs)),
        )

    def _phase(self, node: Any, who: Asked) -> str:
        if node is not None:
            return "recompute" if who.recompute else "backward"
        return "optimizer" if who.optimizer or self._thread.stepping else "forward"


def _turns_bad(entry: _Entry) -> bool:
    """Whether finite inputs became Inf or NaN; False while the numbers are on a device."""
    if any(one.row is not None for one in entry.measured):
        return False
    return all(one.stats.finite for one in entry.inputs) and not all(one.stats.finite for one in entry.outputs)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch annotates no __init_subclass__
    """Hands every op to `run`."""

    supports_higher_order_operators = True

    def __init__(self, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch annotates no such constructor
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(func, args, kwargs or {})
