"""A unit is the smallest module that runs as one: it is cast whole or kept in float32 whole.

Leaves are units, and so are modules that read their children's weights without calling them (attention and recurrent
layers), where a child of another dtype would be a dtype error.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from mixprec._policy import CastRule, Policy
from mixprec._policy.resolve import module_rule, resolve_at
from mixprec._policy.selector import Place, class_names

__all__ = ["kept_by_policy", "own_tensors", "tied", "units"]

_WHOLE = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)

_OPS: dict[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.Bilinear: "bilinear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.Conv3d: "conv3d",
    nn.ConvTranspose1d: "conv_transpose1d",
    nn.ConvTranspose2d: "conv_transpose2d",
    nn.ConvTranspose3d: "conv_transpose3d",
    nn.LayerNorm: "layer_norm",
    nn.RMSNorm: "rms_norm",
    nn.GroupNorm: "group_norm",
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
    nn.Softplus: "softplus",
    nn.PReLU: "prelu",
    nn.MultiheadAttention: "scaled_dot_product_attention",
    nn.CosineSimilarity: "cosine_similarity",
}
"""The op that a module of torch.nn is, by which a policy decides over it."""

_FULL = (CastRule.FP32, CastRule.FP32_OUT)


def units(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(path, module) of every unit, in order; a module that is there twice counts once."""
    inside: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{whole}.") for whole in inside):
            continue
        if isinstance(module, _WHOLE):
            inside.append(path)
            yield path, module
        elif next(module.children(), None) is None:
            yield path, module


def own_tensors(module: nn.Module, *, whole: bool) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """(owner, name, tensor) of the floating-point parameters and buffers of `module`; with children where `whole`."""
    for owner in module.modules() if whole else (module,):
        for store in (owner._parameters, owner._buffers):
            yield from ((owner, name, t) for name, t in store.items() if t is not None and t.is_floating_point())


def kept_by_policy(model: nn.Module, policy: Policy) -> dict[str, str]:
    """Path to reason of each unit that `policy` runs in float32."""
    classes = {path: class_names(type(module)) for path, module in model.named_modules()}
    kept = {}
    for path, module in units(model):
        places = [Place(above, classes.get(above, ())) for above in _enclosing(path)]
        op = next((_OPS[kind] for kind in type(module).__mro__ if kind in _OPS), None)
        if op is not None:
            decision = resolve_at(policy, op, places)
            if decision.rule in _FULL:
                kept[path] = f"policy: {op}: {decision.reason}"
        elif module_rule(policy, places) is CastRule.FP32:
            kept[path] = "policy: a rule for the module that it is in"
    return kept


def tied(model: nn.Module) -> list[set[str]]:
    """Sets of units that share a tensor and therefore have one dtype."""
    owners: dict[int, set[str]] = {}
    for path, module in units(model):
        for _, _, tensor in own_tensors(module, whole=True):
            owners.setdefault(id(tensor), set()).add(path)
    return [paths for paths in owners.values() if len(paths) > 1]


def _enclosing(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return [".".join(parts[:i]) for i in range(len(parts) + 1)]
