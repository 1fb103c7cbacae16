"""Modules: which op a layer of torch.nn runs, whose parameters have which dtype, and what `.half()` does to them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mixprec.lint.dtypes._dtypes import FLOATS, Dtypes, is_low
from mixprec.lint.dtypes._joins import join
from mixprec.lint.dtypes._state import State
from mixprec.lint.dtypes._values import (
    UNKNOWN,
    Choice,
    Instance,
    Items,
    Known,
    Optimizer,
    Table,
    Tag,
    Tensor,
    Value,
    Wrapped,
)

__all__ = [
    "CONTAINERS",
    "LAYERS",
    "Layer",
    "convert",
    "duplicate",
    "each_parameter",
    "every_module",
    "is_module",
    "parameters",
    "submodules",
    "trained",
    "weight_of",
]


@dataclass(frozen=True)
class Layer:
    """`op` runs when the layer is called; `weighted`: with a weight of its own."""

    op: str
    weighted: bool = False


_WEIGHTED = {
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "BatchNorm3d": "batch_norm",
    "Bilinear": "bilinear",
    "Conv1d": "conv1d",
    "Conv2d": "conv2d",
    "Conv3d": "conv3d",
    "ConvTranspose1d": "conv_transpose1d",
    "ConvTranspose2d": "conv_transpose2d",
    "ConvTranspose3d": "conv_transpose3d",
    "Embedding": "embedding",
    "GRU": "gru",
    "GroupNorm": "group_norm",
    "InstanceNorm1d": "instance_norm",
    "InstanceNorm2d": "instance_norm",
    "InstanceNorm3d": "instance_norm",
    "LSTM": "lstm",
    "LayerNorm": "layer_norm",
    "Linear": "linear",
    "MultiheadAttention": "attention",
    "PReLU": "prelu",
    "RMSNorm": "rms_norm",
    "RNN": "rnn",
    "SyncBatchNorm": "batch_norm",
    "TransformerDecoderLayer": "transformer",
    "TransformerEncoder": "transformer",
    "TransformerEncoderLayer": "transformer",
}
_PLAIN = {
    "AdaptiveAvgPool1d": "adaptive_avg_pool1d",
    "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
    "AdaptiveMaxPool2d": "adaptive_max_pool2d",
    "AvgPool1d": "avg_pool1d",
    "AvgPool2d": "avg_pool2d",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CTCLoss": "ctc_loss",
    "CosineEmbeddingLoss": "cosine_embedding_loss",
    "CrossEntropyLoss": "cross_entropy",
    "Dropout": "dropout",
    "Dropout1d": "dropout",
    "Dropout2d": "dropout",
    "Dropout3d": "dropout",
    "ELU": "elu",
    "Flatten": "flatten",
    "GELU": "gelu",
    "Hardsigmoid": "hardsigmoid",
    "Hardswish": "hardswish",
    "HuberLoss": "huber_loss",
    "Identity": "clone",
    "KLDivLoss": "kl_div",
    "L1Loss": "l1_loss",
    "LeakyReLU": "leaky_relu",
    "LogSigmoid": "logsigmoid",
    "LogSoftmax": "log_softmax",
    "MSELoss": "mse_loss",
    "MarginRankingLoss": "margin_ranking_loss",
    "MaxPool1d": "max_pool1d",
    "MaxPool2d": "max_pool2d",
    "Mish": "mish",
    "NLLLoss": "nll_loss",
    "PixelShuffle": "pixel_shuffle",
    "PixelUnshuffle": "pixel_unshuffle",
    "ReLU": "relu",
    "ReLU6": "relu6",
    "ReflectionPad2d": "pad",
    "ReplicationPad2d": "pad",
    "SELU": "selu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "SmoothL1Loss": "smooth_l1_loss",
    "Softmax": "softmax",
    "Softplus": "softplus",
    "Tanh": "tanh",
    "TripletMarginLoss": "triplet_margin_loss",
    "Unflatten": "unflatten",
    "Upsample": "interpolate",
    "UpsamplingBilinear2d": "interpolate",
    "UpsamplingNearest2d": "interpolate",
    "ZeroPad2d": "pad",
}
LAYERS: dict[str, Layer] = {
    **{name: Layer(op, weighted=True) for name, op in _WEIGHTED.items()},
    **{name: Layer(op) for name, op in _PLAIN.items()},
}
"""Layer of torch.nn -> its op."""

CONTAINERS = frozenset({"ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"})
"""Modules that hold others."""

MODULES = frozenset(
    {"BaseModel", "BaseModule", "LightningModule", "ModelMixin", "Module", "PreTrainedModel", "PyTorchModelHubMixin"}
)
"""Last names of the library classes whose subclasses are modules."""

_PARAMETER = frozenset({Tag.PARAMETER})


def is_module(instance: Instance) -> bool:
    """Whether an instance is a torch.nn.Module, as far as its bases say."""
    if instance.cls is None:
        return True
    return instance.layer is not None or any(
        isinstance(base, Known) and base.name.rpartition(".")[2] in MODULES for base in instance.cls.ancestry()
    )


def weight_of(instance: Instance) -> Tensor | None:
    """The weight of a layer of torch.nn; None where it has none."""
    layer = LAYERS.get(instance.layer or "")
    if layer is None or not layer.weighted:
        return None
    return Tensor(instance.dtypes, rank0=False, tags=_PARAMETER, why=instance.converted, origin=instance.source)


def _parts(instance: Instance) -> Iterator[tuple[str | int, Value]]:
    """(attribute or place, value) of everything that a module holds."""
    yield from instance.attributes.items()
    yield from enumerate(instance.children)


def _members(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Items):
        return value.items if value.items is not None else (value.element,)
    if isinstance(value, Table):
        return tuple(item for _, item in value.items)
    return value.values if isinstance(value, Choice) else ()


def parameters(value: Value, seen: set[int] | None = None) -> Value | None:
    """Any one parameter of a module, as a tensor; None where it has none, UNKNOWN where that is open."""
    seen = set() if seen is None else seen
    if isinstance(value, Wrapped):
        return parameters(value.inner, seen)
    if not isinstance(value, Instance):
        return _loose(value, seen)
    if id(value) in seen:
        return None
    seen.add(id(value))
    found: Value | None = weight_of(value)
    if value.layer is None and value.cls is None:
        return Tensor(value.dtypes, tags=_PARAMETER, why=value.converted, origin=value.source)
    for _, part in _parts(value):
        inner = parameters(part, seen)
        if inner is not None:
            found = inner if found is None else join(found, inner)
    return found


def each_parameter(value: Value, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every parameter of a module that is known one by one; of a layer, one stands for all."""
    seen = set() if seen is None else seen
    if isinstance(value, Wrapped):
        yield from each_parameter(value.inner, seen)
    elif isinstance(value, Instance) and id(value) not in seen:
        seen.add(id(value))
        weight = weight_of(value)
        if weight is not None:
            yield weight
        for _, part in _parts(value):
            yield from each_parameter(part, seen)
    elif isinstance(value, Tensor) and Tag.PARAMETER in value.tags:
        yield value
    elif isinstance(value, (Items, Table)):
        for member in _members(value):
            yield from each_parameter(member, seen)


def _loose(value: Value, seen: set[int]) -> Value | None:
    """Parameters of what stands in a module without being one."""
    if isinstance(value, Tensor):
        return replace(value, tags=_PARAMETER) if value.tags & {Tag.PARAMETER, Tag.MAYBE_MODULE} else None
    found: Value | None = None
    for member in _members(value):
        inner = parameters(member, seen)
        if inner is not None:
            found = inner if found is None else join(found, inner)
    return found


def trained(optimizer: Optimizer) -> Value:
    """Any one of the parameters that an optimizer holds, with the dtype that it has now."""
    return _trained(optimizer.parameters)


def _trained(value: Value) -> Value:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Table):
        return _trained(value.get("params") or UNKNOWN)
    if not isinstance(value, Items):
        return UNKNOWN
    if value.owner is not None:
        found = parameters(value.owner)
        return UNKNOWN if found is None else found
    joined: Value | None = None
    for part in value.items if value.items is not None else (value.element,):
        inner = _trained(part)
        joined = inner if joined is None else join(joined, inner)
    return UNKNOWN if joined is None else joined


def submodules(value: Instance) -> list[Value]:
    """The modules that a module holds itself, in the order in which it got them; each once."""
    found: list[Value] = []
    for _, part in _parts(value):
        held = isinstance(part, Wrapped) or (isinstance(part, Instance) and is_module(part))
        if held and part is not value and not any(part is one for one in found):
            found.append(part)
    return found


def every_module(value: Instance) -> list[Instance]:
    """A module and all below it, from the top; each once."""
    found: list[Instance] = []
    waiting: list[Value] = [value]
    while waiting:
        part = waiting.pop(0)
        while isinstance(part, Wrapped):
            part = part.inner
        if isinstance(part, Instance) and not any(part is one for one in found):
            found.append(part)
            waiting = [*submodules(part), *waiting]
    return found


def convert(state: State, value: Value, dtypes: Dtypes, node: ast.AST | None = None) -> None:
    """`.half()` and its kin on a module, in place, at `node`: every floating parameter and buffer gets the dtype."""
    _convert(state, value, dtypes, node, set())


def _convert(state: State, value: Value, dtypes: Dtypes, node: ast.AST | None, seen: set[int]) -> None:
    how = f"the conversion in line {getattr(node, 'lineno', 0)}" if is_low(dtypes) else ""
    if isinstance(value, Wrapped):
        _convert(state, value.inner, dtypes, node, seen)
    elif isinstance(value, Instance):
        if id(value) in seen:
            return
        seen.add(id(value))
        state.retype(value, dtypes, how, node)
        for name, part in list(_parts(value)):
            if isinstance(part, Tensor) and isinstance(name, str):
                if part.tags & {Tag.PARAMETER, Tag.BUFFER} and (part.dtypes is None or part.dtypes & FLOATS):
                    state.assign(value, name, replace(part, dtypes=dtypes, why=how, origin=node))
            else:
                _convert(state, part, dtypes, node, seen)
    else:
        for member in _members(value):
            _convert(state, member, dtypes, node, seen)


def duplicate(state: State, value: Value, copies: dict[int, Instance] | None = None) -> Value:
    """`copy.deepcopy`: the same values in new objects."""
    copies = {} if copies is None else copies
    if isinstance(value, Instance):
        if id(value) not in copies:
            copy = copies[id(value)] = Instance(value.cls, value.layer, state.branch)
            copy.dtypes, copy.converted, copy.source = value.dtypes, value.converted, value.source
            copy.attributes = {name: duplicate(state, part, copies) for name, part in value.attributes.items()}
            copy.children = tuple(duplicate(state, child, copies) for child in value.children)
        return copies[id(value)]
    if isinstance(value, Wrapped):
        return replace(value, inner=duplicate(state, value.inner, copies))
    if isinstance(value, Items) and value.items is not None:
        return replace(value, items=tuple(duplicate(state, item, copies) for item in value.items))
    if isinstance(value, Items):
        return replace(value, element=duplicate(state, value.element, copies))
    return value if not isinstance(value, Choice) else UNKNOWN
