"""A watch writes down what runs, below autograd, where casts are ops like all others, and changes no result.

Backward ops are placed by the forward op whose gradient they compute: both have one sequence number.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mixprec._trace import is_user_file, user_site
from mixprec.audit._flops import flops_of, has_formula, product_of
from mixprec.audit._log import Asked, Event, Freed, Held, Mark, Op, Phase, Ref, Saved, Storage, Sync
from mixprec.audit._storages import Storages, dtype_name, parts_of
from mixprec.audit._where import Modules
from mixprec.audit._workspace import workspaces_of
from mixprec.records import Location

__all__ = ["Watch", "region_dtype"]

CASTS = frozenset({"to", "float", "half", "bfloat16", "double", "type", "type_as"})
"""Functions that a script calls to cast by hand."""

_ASKED = frozenset({"float", "half", "bfloat16", "double"})
"""Those of them that name a dtype whatever the tensor has; `to` often means that of another tensor."""

_WAITS = frozenset({"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "_unique2", "unique_dim", "masked_select"})
_READS = frozenset({"cpu", "numpy", "tolist"})


_KEEP_RESULT = frozenset(
    {"_log_softmax", "_softmax", "exp", "logsumexp", "relu", "reciprocal", "rsqrt", "sigmoid", "sqrt", "tanh"}
)
"""Ops that keep their own result, where a composite's next op takes the same tensor before the function returns."""


class Watch:
    """Records events while it is entered. `events` and `storages` are what it has so far.

    **Cost**: every op runs through Python (about 40 µs) and torch.compile steps aside, so nothing timed inside a
    watch says how long a step takes. No kernel, no host sync, no tensor is kept alive.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._seen = Storages(lambda number: self.events.append(Freed(number)))
        self.modules = Modules(self._root)
        self.optimizing = False
        self.regions = 0
        self._places: dict[int, tuple[str, str, str, Location]] = {}
        self._functions = _Functions(self)
        self._ops = _Ops(self)
        self._packs = saved_tensors_hooks(self._pack, lambda x: x)
        self._pending: list[Ref] = []
        self._eager = contextlib.ExitStack()
        self._last: Op | None = None
        self.on = False

    @property
    def storages(self) -> dict[int, Storage]:
        """Every storage seen, by number."""
        return self._seen.known

    def start(self, *models: nn.Module) -> None:
        """Begin to record."""
        if self.on:
            return
        self.on = True
        for model in models:
            self.modules.add_root(model)
        self.modules.start()
        if "torch._dynamo" in sys.modules:  # a compiled function with fullgraph=True raises under a dispatch mode
            self._eager.enter_context(torch.compiler.set_stance("force_eager"))
        self._packs.__enter__()
        self._functions.__enter__()  # type: ignore[no-untyped-call] # torch annotates none of it
        self._ops.__enter__()  # type: ignore[no-untyped-call] # torch annotates none of it

    def stop(self) -> None:
        """Stop recording; `start` continues."""
        if not self.on:
            return
        self.on = False
        self._ops.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch annotates none of it
        self._functions.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch annotates none of it
        self._packs.__exit__(None, None, None)
        self._eager.close()
        self.modules.stop()
        self._settle(None)

    def hold(self, kind: Any, name: str, tensor: Tensor) -> Held:
        """`tensor` as memory with an owner."""
        return Held(kind, name, self._seen.ref(tensor, before=True))

    def mark(self, what: str, *, location: Location | None = None, held: Sequence[Held] = (), dtype: str = "") -> None:
        """Write down a boundary."""
        self._settle(None)
        self.events.append(Mark(what, location or Location(), tuple(held), dtype))

    def _root(self, module: nn.Module, begins: bool) -> None:
        if begins:
            self.mark("forward")

    # ── what the three hooks tell ───────────────────────────────────────────────────────────────────────────────────

    def ran(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, seconds: float) -> None:
        """An op ran."""
        tensors = _tensors((args, kwargs))
        results = _tensors(out)
        inputs = tuple(self._seen.ref(x, before=True) for x in tensors)
        made = tuple(x for x in results if not self._seen.has(x))
        outputs = tuple(self._seen.ref(x) for x in results)
        phase, sequence, (module, cls, function, location) = self._place()
        name = func._overloadpacket.__name__
        numbers = tuple(dict.fromkeys(self._seen.ref(x).storage for x in made))
        low = self._functions.low if phase in (Phase.FORWARD, Phase.RECOMPUTE) else ""
        op = Op(
            name=name,
            func=function,
            phase=phase,
            module=module,
            cls=cls,
            location=location,
            inputs=inputs,
            outputs=outputs,
            made=numbers,
            flops=flops_of(func._overloadpacket, args, kwargs, out),
            product=product_of(func._overloadpacket, args, out),
            low=low,
            region=self.regions,
            seconds=seconds,
            explicit=function in CASTS,
            factory=not tensors,
            sequence=sequence,
            workspaces=workspaces_of(name, func, args),
        )
        self._settle(op)
        self.events.append(op)
        self._last = op
        if name in _WAITS or _by_truth(name, args):
            self.waited(self._functions.name or name, self._functions.by_script, tensors[:1])

    def waited(self, what: str, by_script: bool, read: Sequence[Any]) -> None:
        """The host asked for a value of the first of `read`."""
        phase = self._phase()
        number = next((self._seen.ref(x, before=True).storage for x in read if isinstance(x, Tensor)), -1)
        self.events.append(Sync(what, user_site(), phase, self.modules.cls, by_script, number))

    def asked(self, tensor: Tensor) -> None:
        """The script asked for a dtype that `tensor` has already."""
        if self.on and self._seen.has(tensor):
            self._settle(None)
            self.events.append(Asked(self._seen.ref(tensor, before=True).storage, dtype_name(tensor.dtype)))

    def _pack(self, tensor: Tensor) -> Tensor:
        if self.on:
            self._pending += (self._seen.ref(part, before=True) for part in parts_of(tensor))
        return tensor

    def returned(self) -> None:
        """A function returned: what was saved after its last op are that op's results."""
        if self._pending:
            self._settle(None)

    def _settle(self, following: Op | None) -> None:
        """Give what was saved since the last op to the op that it was saved for."""
        pending, self._pending = self._pending, []
        before = {ref.storage for ref in self._last.outputs} if self._last is not None else set()
        after = {ref.storage for ref in following.inputs} if following is not None else set()
        told: set[int] = set()
        for ref in pending:
            both = ref.storage in before and ref.storage in after
            keeps = self._last is not None and self._last.name in _KEEP_RESULT and ref.storage not in told
            output = ref.storage in before and (not both or keeps)
            told.add(ref.storage)
            owner = self._last if output or following is None else following
            module, func = (owner.module, owner.func or owner.name) if owner is not None else ("", "")
            self.events.append(Saved(ref, module, func, output))

    # ── where an op stands ──────────────────────────────────────────────────────────────────────────────────────────

    def _phase(self) -> Phase:
        if torch._C._current_autograd_node() is not None:
            return Phase.RECOMPUTE if self.modules.cls else Phase.BACKWARD
        return Phase.OPTIMIZER if self.optimizing and not self.modules.cls else Phase.FORWARD

    def _place(self) -> tuple[Phase, int, tuple[str, str, str, Location]]:
        node = torch._C._current_autograd_node()
        phase = self._phase()
        if node is not None and phase is Phase.BACKWARD:
            number = node._sequence_nr()
            return phase, number, self._places.get(number) or ("", "", "", Location())
        place = (self.modules.path, self.modules.cls, self._functions.name, user_site(2))
        number = torch._C._autograd._get_sequence_nr() - 1
        if phase is not Phase.OPTIMIZER:
            self._places.setdefault(number, place)
        return phase, number, place


class _Functions(TorchFunctionMode):
    """Knows which function the script called, by the outermost name."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self.name = ""
        self.by_script = False
        self.low = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _short(func)
        if name.endswith("__get__"):
            return func(*args, **(kwargs or {}))
        caller = sys._getframe(1).f_code.co_filename
        before = self.name, self.by_script, self.low
        self.name, self.by_script, self.low = name, is_user_file(caller), region_dtype()
        try:
            if name in _READS and self.watch.on:
                self.watch.waited(name, self.by_script, args[:1])
            out = func(*args, **(kwargs or {}))
            if name in _ASKED and out is args[0]:
                self.watch.asked(out)
            return out
        finally:
            self.watch.returned()
            self.name, self.by_script, self.low = before


class _Ops(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch annotates none of it
    """Sees every op, forward, backward and in the optimizer."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch annotates none of it
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not has_formula(func._overloadpacket) and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        begin = time.perf_counter()
        out = func(*args, **kwargs)
        seconds = time.perf_counter() - begin
        if func.namespace != "prim":  # fake tensors ask for devices by such ops
            self.watch.ran(func, args, kwargs, out, seconds)
        return out


def _tensors(tree: Any) -> list[Tensor]:
    return [part for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) for part in parts_of(leaf)]


def _short(func: Any) -> str:
    """`linear` for `torch.nn.functional.linear`, `item` for `Tensor.item`."""
    return str(getattr(func, "__name__", ""))


_composite: dict[Any, bool] = {}


def _is_composite(func: Any) -> bool:
    """Whether the op is made of others; such ops arrive whole only in inference mode."""
    known = _composite.get(func)
    if known is None:
        implicit, real = "CompositeImplicitAutograd", func.namespace != "prim"
        known = real and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), implicit)
        _composite[func] = known
    return known


def _by_truth(name: str, args: Sequence[Any]) -> bool:
    """Indexing by a mask asks the device how many elements there are."""
    if name not in ("index", "index_put", "index_put_") or len(args) < 2:
        return False
    return any(isinstance(x, Tensor) and x.dtype is torch.bool for x in tree_leaves(args[1]))


def region_dtype() -> str:
    """The dtype of the open autocast region, "" outside.

    Asked at the function call, because in what autocast itself calls it says that it is off.
    """
    for kind in _KINDS:
        if torch.is_autocast_enabled(kind):
            return dtype_name(torch.get_autocast_dtype(kind))
    return ""


_KINDS = tuple(dict.fromkeys(("cpu", "cuda", str(getattr(torch.accelerator.current_accelerator(), "type", "cpu")))))
