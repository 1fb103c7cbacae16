"""Functions and classes of libraries, by their dotted name: torch's ops, layers, optimizers, contexts, and builtins."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from mixprec.lint._names import AUTOCASTS, SCALERS
from mixprec.lint.dtypes._call import Call, dtypes_of
from mixprec.lint.dtypes._comparing import truth_of
from mixprec.lint.dtypes._dtypes import Dtypes
from mixprec.lint.dtypes._functions import BUILTINS, FUNCTIONS
from mixprec.lint.dtypes._given import Given
from mixprec.lint.dtypes._layers import CONTAINERS, LAYERS, convert, trained
from mixprec.lint.dtypes._methods import Methods
from mixprec.lint.dtypes._region import DEFAULT
from mixprec.lint.dtypes._values import (
    NONE,
    NUMBER,
    UNKNOWN,
    Autocast,
    Choice,
    Class,
    Const,
    Context,
    Instance,
    Items,
    Known,
    Optimizer,
    Scaler,
    Table,
    Value,
    Wrapped,
    options,
)
from mixprec.lint.dtypes.ops import OPS

__all__ = ["CHANGES", "Library", "is_own_optimizer"]

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


class Library(Methods):
    """Calls of what is not the project's own."""

    def library(self, name: str, given: Given) -> Value:
        """The result of calling the library's `name`."""
        if name in AUTOCASTS:
            return self._autocast(name, given)
        if name in SCALERS or name.endswith(".ShardedGradScaler"):
            return self._scaler(name, given)
        if name in _GRAD:
            return Context(_GRAD[name])
        if name in _WRAPPERS:
            return self._wrapped(_WRAPPERS[name], given)
        if name in BUILTINS:
            return BUILTINS[name](given.args)
        if name in FUNCTIONS:
            return FUNCTIONS[name](self, given)
        last = name.rpartition(".")[2]
        if name.startswith("torch.optim.") and _is_optimizer(name):
            return self._optimizer(last, given)
        if name.startswith("torch.nn.") and last in {*LAYERS, *CONTAINERS}:
            return self.layer(last, given)
        return self._function(name, given)

    def _function(self, name: str, given: Given) -> Value:
        """Ops, pretrained models, and functions of which nothing is known."""
        last = name.rpartition(".")[2]
        if name.startswith(_MATRICES) or (name.startswith("torch.") and last in _MATRIX_OPS):
            return self._op(name.removeprefix("torch."), given)
        namespace = next((prefix for prefix in _NAMESPACES if name.startswith(prefix)), None)
        if namespace is not None and name.removeprefix(namespace) in OPS:
            return self._op(last, given)
        if namespace is not None and last.endswith("_") and last[:-1] in OPS and name.count(".") == 1:
            return self.op_method(given.get(0), last, replace(given, args=given.args[1:]))
        if name.startswith("einops.") and last in ("rearrange", "repeat"):
            return self._op("rearrange", given)
        if name.startswith(_PRETRAINED):
            return Instance(None, None, self.state.branch)
        if name.startswith("math."):
            return NUMBER
        self.note("call", replace(given, args=(Known(name), *given.args)))
        if last == "from_pretrained":
            return self._pretrained(given)
        return self.unknown_call(name, given)

    def _op(self, name: str, given: Given) -> Value:
        return self.op(Call(name, given.node, self.state.region, given.args, given.keywords), given.frame)

    def unknown_call(self, name: str, given: Given) -> Value:
        """Something that may change the modules that it is given, if its name sounds like that."""
        if CHANGES.search(name.rpartition(".")[2].lower()):
            for value in (*given.args, *given.keywords.values()):
                convert(self.state, value, None)
        return UNKNOWN

    # --- autocast, scalers, optimizers

    def _autocast(self, name: str, given: Given) -> Value:
        """An autocast context; one with a policy of its own may do anything."""
        if given.keywords.get("policy", NONE) != NONE:
            return UNKNOWN
        fixed = next((device for device in ("cuda", "cpu", "xpu") if f".{device}.amp" in name), None)
        names = ("enabled", "dtype", "cache_enabled") if fixed else ("device_type", "dtype", "enabled", "cache_enabled")
        said = given.named(*names)
        device = fixed or _device_of(said.get("device_type"))
        dtypes = DEFAULT if said.get("dtype", NONE) == NONE else _named_dtypes(said["dtype"])
        cache = said.get("cache_enabled", NONE)
        enabled = _flag(said.get("enabled"))
        autocast = Autocast(device, dtypes, enabled, None if cache == NONE else _flag(cache), given.node)
        self.note("autocast", replace(given, args=(autocast, *given.args)))
        return autocast

    def _scaler(self, name: str, given: Given) -> Value:
        place = 4 if ".cuda.amp" in name or ".cpu.amp" in name else 5
        enabled = given.get(place, "enabled", NONE)
        return Scaler(True if enabled == NONE else _flag(enabled), "Sharded" in name, given.node)

    def _optimizer(self, name: str, given: Given) -> Value:
        names = ("params", "lr", "betas", "eps", "weight_decay") if "Adam" in name else ("params", "lr")
        said = given.named(*names)
        return self._made(Optimizer(name, said.get("params", UNKNOWN), tuple(said.items()), given.node), given)

    def own_optimizer(self, cls: Class, given: Given) -> Optimizer:
        """An optimizer that the project wrote; of one that mentions more bits, what it updates is open."""
        params = UNKNOWN if _MORE_BITS.search(ast.unparse(cls.node)) else given.get(0, "params")
        return self._made(Optimizer(cls.node.name, params, (), given.node, own=True), given)

    def _made(self, optimizer: Optimizer, given: Given) -> Optimizer:
        self.note("optimizer", given.with_args(optimizer, trained(optimizer)))
        return optimizer

    # --- modules

    def layer(self, name: str, given: Given) -> Instance:
        """A layer of torch.nn."""
        instance = Instance(None, name, self.state.branch)
        self.init_layer(instance, name, given)
        return instance

    def init_layer(self, instance: Instance, name: str, given: Given) -> None:
        """What the constructor of a layer of torch.nn does to an instance."""
        instance.layer = name
        if given.keywords.get("dtype", NONE) != NONE:
            instance.dtypes = dtypes_of(given.keywords["dtype"])
            instance.converted, instance.source = "its dtype= argument", given.node
        if "reduction" in given.keywords:
            instance.attributes["reduction"] = given.keywords["reduction"]
        if name == "Sequential":
            instance.children = tuple(item for arg in given.args for item in _children(arg))
        elif name in CONTAINERS and given.args:
            instance.children = _children(given.args[0])

    def _wrapped(self, kind: str, given: Given) -> Value:
        inner = given.get(0, "module")
        wraps = kind != "sync" and isinstance(inner, (Instance, Wrapped))
        value = Wrapped(inner, kind, given.node) if wraps else inner
        self.note("wrap", given.with_args(Const(kind), value))
        return value

    def _pretrained(self, given: Given) -> Value:
        """A module with weights from elsewhere: in the dtype that is asked for, else in one that is open."""
        instance = Instance(None, None, self.state.branch)
        asked = given.keywords.get("torch_dtype", given.keywords.get("dtype"))
        instance.dtypes = dtypes_of(asked)
        if asked is not None:
            instance.converted, instance.source = f"its dtype in line {given.line}", given.node
        return instance


_MORE_BITS = re.compile(r"float|double|master|kahan|compensat|stochastic|carry|dtype|\.to\(", re.IGNORECASE)
"""What an optimizer says that keeps float32 copies, or makes up for what rounding loses."""


def is_own_optimizer(cls: Class) -> bool:
    """Whether `cls` derives from an optimizer of torch.optim."""
    known = (base.name for base in cls.ancestry() if isinstance(base, Known))
    return any(name.startswith("torch.optim.") and _is_optimizer(name) for name in known)


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
