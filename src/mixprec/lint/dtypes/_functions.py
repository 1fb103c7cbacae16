"""Single functions of torch, of the standard library, and builtins, by their dotted name."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from mixprec.lint.dtypes._bounds import ANY
from mixprec.lint.dtypes._call import as_tensor, dtype_value, dtypes_of
from mixprec.lint.dtypes._comparing import truth_of
from mixprec.lint.dtypes._dtypes import FORMATS, one
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._joins import element, table
from mixprec.lint.dtypes._layers import CONTAINERS, LAYERS, duplicate, is_module
from mixprec.lint.dtypes._methods import Arguments, Methods
from mixprec.lint.dtypes._region import OFF
from mixprec.lint.dtypes._values import (
    DEVICE,
    NUMBER,
    UNKNOWN,
    Class,
    Const,
    Context,
    Instance,
    Items,
    Known,
    Partial,
    Symbol,
    Table,
    Tag,
    Tensor,
    Value,
    number_of,
)

__all__ = ["BUILTINS", "FUNCTIONS"]

_POOLS = (
    "concurrent.futures.ThreadPoolExecutor",
    "multiprocessing.pool.ThreadPool",
    "concurrent.futures.thread.ThreadPoolExecutor",
)
_PROCESSES = ("torch.multiprocessing.spawn", "torch.multiprocessing.Process", "multiprocessing.Process")
_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.checkpoint")
_WRAPS_ITERABLE = ("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.trange", "iter", "reversed", "sorted", "list", "tuple", "set")
_NUMERIC = (
    "len",
    "abs",
    "round",
    "int",
    "float",
    "ord",
    "hash",
    "id",
    "time.time",
    "time.perf_counter",
    "random.random",
)

_Special = Callable[[Methods, Given], Value]


def _finfo(calls: Methods, given: Given) -> Value:
    dtypes = dtypes_of(given.args[0]) if given.args else one("float32")
    names = sorted(dtypes or ())
    if len(names) == 1 and names[0] in FORMATS:
        row = FORMATS[names[0]]
        values = {"max": row.max, "min": -row.max, "eps": row.eps, "tiny": row.tiny}
        return table({name: Const(value) for name, value in values.items()})
    return table({"max": NUMBER, "min": Symbol.LEAST, "eps": NUMBER, "tiny": NUMBER})


def _parameter(calls: Methods, given: Given) -> Value:
    tensor = as_tensor(given.get(0, "data"))
    return UNKNOWN if tensor is None else replace(tensor, tags=frozenset({Tag.PARAMETER}), bounds=ANY)


def _deepcopy(calls: Methods, given: Given) -> Value:
    return duplicate(calls.state, given.get(0, "x"))


def _partial(calls: Methods, given: Given) -> Value:
    return Partial(given.args[0], given.args[1:], tuple(given.keywords.items())) if given.args else UNKNOWN


def _checkpoint(calls: Methods, given: Given) -> Value:
    """The function is called with what is not checkpoint's own."""
    own = {"use_reentrant", "context_fn", "preserve_rng_state", "determinism_check", "debug", "early_stop"}
    passed = {name: value for name, value in given.keywords.items() if name not in own}
    return calls.apply(given.get(0, "function"), given.with_args(*given.args[1:], **passed))


def _items_of(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, Items) and value.items is not None else ()


def _thread(calls: Methods, given: Given) -> Value:
    calls.in_thread(given.with_args(given.get(1, "target"), *_items_of(given.get(3, "args"))))
    return UNKNOWN


def _spawn(calls: Methods, given: Given) -> Value:
    """Processes that run a function: no region of this one is on there; spawn passes the rank first."""
    target = "target" in given.keywords
    function = given.keywords["target"] if target else given.get(0, "fn")
    first = () if target else (NUMBER,)
    with calls.state.inside(OFF(calls.state.device)):
        calls.apply(function, given.with_args(*first, *_items_of(given.get(1, "args"))))
    return UNKNOWN


def _fire(calls: Methods, given: Given) -> Value:
    return calls.apply(given.get(0), given.with_args())


def _threads(calls: Methods, given: Given) -> Value:
    return Context("threads")


def _device(calls: Methods, given: Given) -> Value:
    return DEVICE


def _autocast_enabled(calls: Methods, given: Given) -> Value:
    enabled = calls.state.region.enabled
    return UNKNOWN if enabled is None else Const(enabled)


def _autocast_dtype(calls: Methods, given: Given) -> Value:
    return dtype_value(calls.state.region.dtypes)


def _default_dtype(calls: Methods, given: Given) -> Value:
    return dtype_value(one("float32"))


def _noted(calls: Methods, given: Given) -> Value:
    """A function that a rule asks for by its last name."""
    function = given.node.func if isinstance(given.node, ast.Call) else None
    if isinstance(function, (ast.Attribute, ast.Name)):
        calls.note(function.attr if isinstance(function, ast.Attribute) else function.id, given)
    return UNKNOWN


def _iterable(calls: Methods, given: Given) -> Value:
    return calls.iterated(given.args[0]) if given.args else UNKNOWN


def _map(calls: Methods, given: Given) -> Value:
    items = tuple(element(calls.iterated(arg)) for arg in given.args[1:])
    return Items(None, calls.apply(given.args[0], given.with_args(*items))) if items else UNKNOWN


def _grad_mode(calls: Methods, given: Given) -> Value:
    known = truth_of(given.get(0, "mode"))
    return Context({True: "grad", False: "no_grad", None: "open"}[known])


def _isinstance(calls: Methods, given: Given) -> Value:
    """Decided for modules and the layers of torch.nn; of what else there is, nothing is known."""
    value, asked = given.get(0), given.get(1)
    classes = asked.items if isinstance(asked, Items) else (asked,)
    if not isinstance(value, Instance) or classes is None or not is_module(value):
        return UNKNOWN
    found = [_is_of(value, cls) for cls in classes]
    return Const(True) if True in found else UNKNOWN if None in found else Const(False)


_KINDS = {"_BatchNorm": ("BatchNorm", "SyncBatchNorm"), "_ConvNd": ("Conv",), "_InstanceNorm": ("InstanceNorm",)}
"""Base classes in torch.nn -> how the names of the layers begin that derive from them."""


def _is_of(value: Instance, cls: Value) -> bool | None:
    """Whether a module is of a class; None where that is open."""
    line: tuple[Value, ...] = () if value.cls is None else tuple(value.cls.ancestry())
    if isinstance(cls, Class):
        return True if cls in line else False if value.cls is None else _without_others(value.cls)
    if not isinstance(cls, Known) or not cls.name.startswith("torch.nn."):
        return None
    name = cls.name.rpartition(".")[2]
    names = {one.name.rpartition(".")[2] for one in line if isinstance(one, Known)} | {value.layer or ""}
    if name in {"Module", *names} or any(one.startswith(_KINDS.get(name, ())) for one in names):
        return True
    if name not in {*LAYERS, *CONTAINERS, *_KINDS} or (value.layer is None and value.cls is None):
        return None
    return False if value.layer is not None or value.cls is None else _without_others(value.cls)


def _without_others(cls: Class) -> bool | None:
    """False where every base of a class is known, so that it is of no other; None where one is not."""
    bases = [base for one in cls.ancestry() if isinstance(one, Class) for base in one.bases]
    known = all(isinstance(b, Class) or (isinstance(b, Known) and b.name.startswith("torch.nn.")) for b in bases)
    return False if known and bases else None


def _dict(calls: Methods, given: Given) -> Value:
    """`dict(...)` with names, and with other dicts where those are known."""
    first = given.get(0) if given.args else Table(())
    keywords = given.node.keywords if isinstance(given.node, ast.Call) else []
    merged = [first, *(calls.value(one.value, given.frame) for one in keywords if one.arg is None)]
    if not isinstance(first, Table) or not all(isinstance(one, Table) and one.element is None for one in merged):
        return first if isinstance(first, Table) and not keywords else UNKNOWN
    return table({**dict(first.items), **given.keywords})


def _getattr(calls: Methods, given: Given) -> Value:
    name = given.get(1)
    if isinstance(name, Const) and isinstance(name.value, str):
        return calls.member(given.args[0], name.value, given.node, given.frame)
    return UNKNOWN


FUNCTIONS: dict[str, _Special] = {
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
    **dict.fromkeys(_POOLS, _threads),
    **dict.fromkeys(_WRAPS_ITERABLE, _iterable),
    **dict.fromkeys(("copy.deepcopy", "copy.copy"), _deepcopy),
    **dict.fromkeys(("torch.nn.Parameter", "torch.nn.parameter.Parameter"), _parameter),
    **dict.fromkeys(
        ("torch.distributed.all_reduce", "torch.distributed.reduce", "torch.distributed.reduce_scatter"), _noted
    ),
    **dict.fromkeys(("numpy.asarray", "numpy.array"), _noted),
    **dict.fromkeys(
        ("torch.get_autocast_gpu_dtype", "torch.get_autocast_dtype", "torch.get_autocast_cpu_dtype"), _autocast_dtype
    ),
    **dict.fromkeys(
        ("torch.multiprocessing.spawn", "torch.multiprocessing.Process", "multiprocessing.Process"), _spawn
    ),
    **dict.fromkeys(("fire.Fire", "typer.run", "absl.app.run"), _fire),
    "dict": _dict,
    "functools.partial": _partial,
    "getattr": _getattr,
    "isinstance": _isinstance,
    "map": _map,
    "threading.Thread": _thread,
    "torch.device": _device,
    "torch.finfo": _finfo,
    "torch.get_default_dtype": _default_dtype,
    "torch.is_autocast_enabled": _autocast_enabled,
    "torch.set_grad_enabled": _grad_mode,
}


def _len(args: Arguments) -> Value:
    value = args[0] if args else UNKNOWN
    if isinstance(value, Items) and value.items is not None:
        return Const(len(value.items))
    first = value.shape[0] if isinstance(value, Tensor) and value.shape else None
    return NUMBER if first is None else Const(first)


def _range(args: Arguments) -> Value:
    return Items(None, NUMBER)


def _enumerate(args: Arguments) -> Value:
    items = args[0] if args else UNKNOWN
    if isinstance(items, Instance) and items.children:
        items = Items(items.children)
    if isinstance(items, Items) and items.items is not None:
        return Items(tuple(Items((Const(place), item)) for place, item in enumerate(items.items)))
    inner = (
        items.element
        if isinstance(items, Items)
        else (replace(items, rank0=None) if isinstance(items, Tensor) else UNKNOWN)
    )
    return Items(None, Items((NUMBER, inner)))


def _zip(args: Arguments) -> Value:
    columns = [Items(arg.children) if isinstance(arg, Instance) and arg.children else arg for arg in args]
    known = [column.items for column in columns if isinstance(column, Items) and column.items is not None]
    if columns and len(known) == len(columns):
        return Items(tuple(Items(row) for row in zip(*known, strict=False)))
    return Items(None, Items(tuple(element(c) if isinstance(c, Items) else UNKNOWN for c in columns)))


def _float(args: Arguments) -> Value:
    value = args[0] if args else UNKNOWN
    if isinstance(value, Const) and isinstance(value.value, (int, float, str)):
        try:
            return Const(float(value.value))
        except (ValueError, OverflowError):
            return NUMBER
    return NUMBER


def _int(args: Arguments) -> Value:
    number = number_of(args[0]) if args else None
    return NUMBER if number is None else Const(int(number))


BUILTINS: dict[str, Callable[[Arguments], Value]] = {
    **dict.fromkeys(_NUMERIC, lambda args: NUMBER),
    "len": _len,
    "enumerate": _enumerate,
    "float": _float,
    "int": _int,
    "next": lambda args: element(args[0]) if args and isinstance(args[0], Items) else UNKNOWN,
    "range": _range,
    "zip": _zip,
}
