"""Functions and classes of libraries, by their dotted name: torch's ops, layers, optimizers, contexts, and builtins."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint.dtypes._call import Call, as_tensor, dtype_value, dtypes_of
from mixprec.lint.dtypes._dtypes import FORMATS, Dtypes, one
from mixprec.lint.dtypes._expressions import truth_of
from mixprec.lint.dtypes._frame import Frame
from mixprec.lint.dtypes._layers import CONTAINERS, LAYERS, convert, duplicate, trained
from mixprec.lint.dtypes._methods import Arguments, Keywords, Methods
from mixprec.lint.dtypes._region import DEFAULT, OFF
from mixprec.lint.dtypes._values import (
    DEVICE,
    NONE,
    NUMBER,
    UNKNOWN,
    Autocast,
    Choice,
    Const,
    Context,
    Instance,
    Items,
    Known,
    Optimizer,
    Partial,
    Scaler,
    Symbol,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
    element,
    number_of,
    options,
    table,
)
from mixprec.lint.dtypes.ops import OPS

__all__ = ["CHANGES", "Library"]

_NAMESPACES = ("torch.nn.functional.", "torch.functional.", "torch.special.", "torch.Tensor.", "torch.")
_MATRICES = ("torch.linalg.", "torch.fft.")
_LINALG = """
    cholesky cholesky_inverse cholesky_solve det eig inverse logdet lstsq lu nanquantile pinverse qr slogdet solve stft
    svd symeig triangular_solve
"""
_MATRIX_OPS = frozenset(_LINALG.split())
CHANGES = re.compile(
    r"adapt|amp|apply|cast|conver|float|fp16|bf16|freeze|half|init|inject|kbit|keep|lora|parallel|patch|peft|precision|"
    r"prepare|quant|replace|shard|upcast|wrap|deepspeed|dtype"
)
"""Names of unknown functions that may change the dtype of a module that they are given."""

_WRAPPERS = {
    "torch.compile": "compile",
    "torch.jit.script": "script",
    "torch.nn.DataParallel": "DataParallel",
    "torch.nn.parallel.DataParallel": "DataParallel",
    "torch.nn.parallel.DistributedDataParallel": "DistributedDataParallel",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": "sync",
    "torch.distributed.fsdp.FullyShardedDataParallel": "FSDP",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "FSDP",
}
_GRAD = {
    "torch.no_grad": "no_grad",
    "torch.autograd.no_grad": "no_grad",
    "torch.inference_mode": "no_grad",
    "torch.autograd.inference_mode": "no_grad",
    "torch.enable_grad": "grad",
    "contextlib.nullcontext": "nothing",
    "contextlib.suppress": "nothing",
}
_PRETRAINED = ("torchvision.models.", "segmentation_models_pytorch.", "timm.create_model", "timm.models.")
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


class Library(Methods):
    """Calls of what is not the project's own."""

    def library(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """The result of calling the library's `name`."""
        if name in AUTOCASTS:
            return self._autocast(name, args, keywords, node, frame)
        if name in SCALERS or name.endswith(".ShardedGradScaler"):
            return self._scaler(name, args, keywords, node)
        if name in _GRAD:
            return Context(_GRAD[name])
        if name in _WRAPPERS:
            return self._wrapped(_WRAPPERS[name], args, node, frame)
        if name in _BUILTINS:
            return _BUILTINS[name](args)
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, args, keywords, node, frame)
        if name.startswith("torch.optim.") and _is_optimizer(name):
            return self._optimizer(name.rpartition(".")[2], args, keywords, node, frame)
        if name.startswith("torch.nn.") and name.rpartition(".")[2] in {*LAYERS, *CONTAINERS}:
            return self.layer(name.rpartition(".")[2], args, keywords, node)
        return self._function(name, args, keywords, node, frame)

    def _function(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        """Ops, pretrained models, and functions of which nothing is known."""
        last = name.rpartition(".")[2]
        if name.startswith(_MATRICES) or (name.startswith("torch.") and last in _MATRIX_OPS):
            return self.op(Call(name.removeprefix("torch."), node, self.state.region, args, keywords), frame)
        namespace = next((prefix for prefix in _NAMESPACES if name.startswith(prefix)), None)
        if namespace is not None and name.removeprefix(namespace) in OPS:
            return self.op(Call(last, node, self.state.region, args, keywords), frame)
        if namespace is not None and last.endswith("_") and last[:-1] in OPS and name.count(".") == 1:
            return self.op_method(args[0] if args else UNKNOWN, last, args[1:], keywords, node, frame)
        if name.startswith("einops.") and last in ("rearrange", "repeat"):
            return self.op(Call("rearrange", node, self.state.region, args, keywords), frame)
        if name.startswith(_PRETRAINED):
            return Instance(None, None, self.state.branch)
        if name.startswith("math."):
            return NUMBER
        self.note("call", node, (Known(name), *args), frame, keywords)
        if last == "from_pretrained":
            return self._pretrained(keywords, node)
        return self.unknown_call(name, args, keywords)

    def unknown_call(self, name: str, args: Arguments, keywords: Keywords) -> Value:
        """Something that may change the modules that it is given, if its name sounds like that."""
        if CHANGES.search(name.rpartition(".")[2].lower()):
            for value in (*args, *keywords.values()):
                convert(self.state, value, None)
        return UNKNOWN

    # --- autocast, scalers, optimizers

    def _autocast(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        fixed = next((device for device in ("cuda", "cpu", "xpu") if f".{device}.amp" in name), None)
        names = ("enabled", "dtype", "cache_enabled") if fixed else ("device_type", "dtype", "enabled", "cache_enabled")
        given = {**dict(zip(names, args, strict=False)), **keywords}
        device = fixed or _device_of(given.get("device_type"))
        dtypes = DEFAULT if given.get("dtype", NONE) == NONE else _named_dtypes(given["dtype"])
        cache = given.get("cache_enabled", NONE)
        autocast = Autocast(device, dtypes, _flag(given.get("enabled")), None if cache == NONE else _flag(cache), node)
        self.note("autocast", node, (autocast, *args), frame, keywords)
        return autocast

    def _scaler(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST) -> Value:
        place = 4 if ".cuda.amp" in name or ".cpu.amp" in name else 5
        enabled = keywords.get("enabled", args[place] if len(args) > place else None)
        return Scaler(_flag(enabled), "Sharded" in name, node)

    def _optimizer(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
        given = keywords.get("params", args[0] if args else UNKNOWN)
        names = ("params", "lr", "betas", "eps", "weight_decay") if "Adam" in name else ("params", "lr")
        chosen = {**dict(zip(names, args, strict=False)), **keywords}
        optimizer = Optimizer(name, given, tuple(chosen.items()), node)
        self.note("optimizer", node, (optimizer, trained(optimizer)), frame, keywords)
        return optimizer

    # --- modules

    def layer(self, name: str, args: Arguments, keywords: Keywords, node: ast.AST) -> Instance:
        """A layer of torch.nn."""
        instance = Instance(None, name, self.state.branch)
        self.init_layer(instance, name, args, keywords, node)
        return instance

    def init_layer(self, instance: Instance, name: str, args: Arguments, keywords: Keywords, node: ast.AST) -> None:
        """What the constructor of a layer of torch.nn does to an instance."""
        instance.layer = name
        if "dtype" in keywords:
            instance.dtypes = dtypes_of(keywords["dtype"])
            instance.converted, instance.source = "its dtype= argument", node
        if "reduction" in keywords:
            instance.attributes["reduction"] = keywords["reduction"]
        if name == "Sequential":
            instance.children = tuple(item for arg in args for item in _children(arg))
        elif name in CONTAINERS and args:
            instance.children = tuple(_children(args[0]))

    def _wrapped(self, kind: str, args: Arguments, node: ast.AST, frame: Frame) -> Value:
        inner = args[0] if args else UNKNOWN
        if kind == "sync" or not isinstance(inner, (Instance, Wrapped)):
            self.note("wrap", node, (Const(kind), inner), frame)
            return inner
        wrapped = Wrapped(inner, kind, node)
        self.note("wrap", node, (Const(kind), wrapped), frame)
        return wrapped

    def _pretrained(self, keywords: Keywords, node: ast.AST) -> Value:
        """A module with weights from elsewhere: in the dtype that is asked for, else in one that is open."""
        instance = Instance(None, None, self.state.branch)
        asked = keywords.get("torch_dtype", keywords.get("dtype"))
        instance.dtypes = dtypes_of(asked) if asked is not None else None
        if asked is not None:
            instance.converted, instance.source = f"its dtype in line {getattr(node, 'lineno', 0)}", node
        return instance


def _is_optimizer(name: str) -> bool:
    return name.rpartition(".")[2][:1].isupper() and ".lr_scheduler" not in name and ".swa_utils" not in name


def _flag(value: Value | None) -> bool | None:
    """A flag that defaults to true; None where the run decides."""
    return True if value is None else truth_of(value)


def _device_of(value: Value | None) -> str | None:
    if isinstance(value, Const) and isinstance(value.value, str):
        device = value.value.partition(":")[0]
        return device if device in ("cuda", "cpu") else None
    return None


def _named_dtypes(value: Value) -> Dtypes:
    """The dtypes of `dtype=`, None among its options left aside."""
    given = tuple(option for option in options(value) if option != NONE)
    return dtypes_of(Choice(given) if len(given) > 1 else (given[0] if given else UNKNOWN))


def _children(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Items):
        return value.items if value.items is not None else (value.element,)
    if isinstance(value, Table):
        return tuple(item for _, item in value.items)
    return (value,)


# --- single functions

_Special = Callable[[Library, Arguments, Keywords, ast.AST, Frame], Value]


def _finfo(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    dtypes = dtypes_of(args[0]) if args else one("float32")
    names = sorted(dtypes or ())
    if len(names) == 1 and names[0] in FORMATS:
        row = FORMATS[names[0]]
        values = {"max": row.max, "min": -row.max, "eps": row.eps, "tiny": row.tiny}
        return table({name: Const(value) for name, value in values.items()})
    return table({"max": NUMBER, "min": Symbol.LEAST, "eps": NUMBER, "tiny": NUMBER})


def _parameter(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    tensor = as_tensor(args[0] if args else keywords.get("data"))
    return UNKNOWN if tensor is None else replace(tensor, tags=frozenset({Tag.PARAMETER}), bounds=type(tensor.bounds)())


def _deepcopy(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return duplicate(calls.state, args[0]) if args else UNKNOWN


def _partial(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return Partial(args[0], args[1:], tuple(keywords.items())) if args else UNKNOWN


def _checkpoint(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    own = {"use_reentrant", "context_fn", "preserve_rng_state", "determinism_check", "debug", "early_stop"}
    passed = {name: value for name, value in keywords.items() if name not in own}
    return calls.apply(args[0], args[1:], passed, node, frame) if args else UNKNOWN


def _thread(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    given = keywords.get("args")
    passed = given.items if isinstance(given, Items) and given.items is not None else ()
    calls.in_thread((keywords.get("target", UNKNOWN), *passed), node, frame)
    return UNKNOWN


def _spawn(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    """Processes that run a function: no region of this one is on there, and their first argument is a number."""
    function = args[0] if args else keywords.get("fn", keywords.get("target", UNKNOWN))
    given = keywords.get("args", args[1] if len(args) > 1 else NONE)
    passed = given.items if isinstance(given, Items) and given.items is not None else ()
    first = () if "target" in keywords else (NUMBER,)
    with calls.state.inside(OFF(calls.state.device)):
        calls.apply(function, (*first, *passed), {}, node, frame)
    return UNKNOWN


def _fire(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return calls.apply(args[0], (), {}, node, frame) if args else UNKNOWN


def _threads(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return Context("threads")


def _device(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return DEVICE


def _autocast_enabled(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    enabled = calls.state.region.enabled
    return UNKNOWN if enabled is None else Const(enabled)


def _autocast_dtype(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return dtype_value(calls.state.region.dtypes)


def _default_dtype(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return dtype_value(one("float32"))


def _noted(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    calls.note(name, node, args, frame, keywords)
    return UNKNOWN


def _first(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    return calls.iterated(args[0]) if args else UNKNOWN


def _map(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    if len(args) < 2:
        return UNKNOWN
    items = tuple(element(calls.iterated(arg)) for arg in args[1:])
    return Items(None, calls.apply(args[0], items, {}, node, frame))


def _grad_mode(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    known = truth_of(args[0]) if args else None
    return Context({True: "grad", False: "no_grad", None: "open"}[known])


def _getattr(calls: Library, args: Arguments, keywords: Keywords, node: ast.AST, frame: Frame) -> Value:
    if len(args) >= 2 and isinstance(args[1], Const) and isinstance(args[1].value, str):
        return calls.member(args[0], args[1].value, node, frame)
    return UNKNOWN


_SPECIAL: dict[str, _Special] = {
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
    **dict.fromkeys(_POOLS, _threads),
    **dict.fromkeys(_WRAPS_ITERABLE, _first),
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
    "functools.partial": _partial,
    "getattr": _getattr,
    "map": _map,
    "threading.Thread": _thread,
    "torch.device": _device,
    "torch.finfo": _finfo,
    "torch.get_default_dtype": _default_dtype,
    "torch.is_autocast_enabled": _autocast_enabled,
    "torch.set_grad_enabled": _grad_mode,
}


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


_BUILTINS: dict[str, Callable[[Arguments], Value]] = {
    **dict.fromkeys(_NUMERIC, lambda args: NUMBER),
    "dict": lambda args: args[0] if args and isinstance(args[0], Table) else UNKNOWN,
    "enumerate": _enumerate,
    "float": _float,
    "int": _int,
    "next": lambda args: element(args[0]) if args and isinstance(args[0], Items) else UNKNOWN,
    "range": _range,
    "zip": _zip,
}
