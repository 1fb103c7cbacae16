"""Explicit conversions: the dtype is what the script asks for, the values are those that the tensor had."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from mixprec.lint.dtypes._call import Call, as_tensor, dtypes_of
from mixprec.lint.dtypes._dtypes import FLOAT32, INTEGERS, LOW, Dtypes, one
from mixprec.lint.dtypes._values import DEVICE, NUMBER, UNKNOWN, Const, Tag, Tensor, Value, options
from mixprec.lint.dtypes.ops._result import Handler

__all__ = ["CASTS", "NAMED", "asked_dtypes"]

NAMED: dict[str, str] = {
    "bfloat16": "bfloat16",
    "bool": "bool",
    "byte": "uint8",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}
"""Method -> the dtype that it converts to."""

_DEVICE = re.compile(r"dev|cuda|gpu|cpu|rank|mps|xpu|npu", re.IGNORECASE)
_STRING = {"torch.HalfTensor": "float16", "torch.cuda.HalfTensor": "float16", "torch.cuda.FloatTensor": "float32"}


def asked_dtypes(call: Call) -> tuple[bool, Dtypes]:
    """(whether `.to(...)`, `.type(...)` or `.half()` asks for a dtype, which); None for one that is open."""
    if call.name in NAMED:
        return True, one(NAMED[call.name])
    given: list[tuple[Value, ast.expr | None]] = [
        (value, node) for value, node in zip(call.args[1:], _argument_nodes(call.node), strict=False)
    ]
    if "dtype" in call.keywords:
        return True, dtypes_of(call.keywords["dtype"])
    if "other" in call.keywords:
        given.append((call.keywords["other"], None))
    for value, node in given:
        asked = _asked(value, node)
        if asked is not None:
            return True, asked[0]
    return False, None


def _argument_nodes(node: ast.AST) -> list[ast.expr]:
    return list(node.args) if isinstance(node, ast.Call) else []


def _asked(value: Value, node: ast.expr | None) -> tuple[Dtypes] | None:
    """(the dtypes,) where this argument asks for some; None where it is a device or a flag."""
    named = dtypes_of(value)
    if named is not None:
        return (named,)
    tensor = as_tensor(value)
    if tensor is not None:
        return (tensor.dtypes,)
    if isinstance(value, Const):
        return (one(_STRING[value.value]),) if value.value in _STRING else None
    if value in (DEVICE, NUMBER) or (node is not None and _DEVICE.search(ast.unparse(node))):
        return None
    if any(isinstance(option, Const) and not isinstance(option.value, str) for option in options(value)):
        return (None,)
    return (None,) if value is UNKNOWN else None


def _cast(call: Call) -> Value:
    tensor = call.tensor()
    asks, dtypes = asked_dtypes(call)
    if tensor is None:
        return _unknown_cast(call, asks, dtypes)
    if not asks:
        return tensor
    return replace(
        tensor, dtypes=dtypes, tags=_tags(tensor, dtypes), why=_why(call, tensor, dtypes), origin=tensor.origin
    )


def _tags(tensor: Tensor, dtypes: Dtypes) -> frozenset[Tag]:
    """A value keeps its nature; that the script asked for float32 is noted."""
    kept = tensor.tags - {Tag.UPCAST, Tag.WRITTEN_FLOAT, Tag.PROMOTED, Tag.PARAMETER, Tag.BUFFER, Tag.MAYBE_MODULE}
    if dtypes != FLOAT32:
        return kept
    return kept | {Tag.UPCAST if tensor.low or Tag.UPCAST in tensor.tags else Tag.WRITTEN_FLOAT}


def _why(call: Call, tensor: Tensor, dtypes: Dtypes) -> str:
    if dtypes is None or not dtypes <= LOW:
        return ""
    return tensor.why if tensor.dtypes == dtypes and tensor.why else f"the conversion in line {call.line}"


def _unknown_cast(call: Call, asks: bool, dtypes: Dtypes) -> Value:
    """Something of which nothing is known is a tensor or a module; converted, its dtype is known."""
    if not asks or dtypes is None or call.name in ("bool", "int") or dtypes <= INTEGERS:
        return UNKNOWN
    if not call.args or call.args[0] is not UNKNOWN:
        return UNKNOWN
    tags = {Tag.MAYBE_MODULE} | ({Tag.WRITTEN_FLOAT} if dtypes == FLOAT32 else set())
    why = f"the conversion in line {call.line}" if dtypes <= LOW else ""
    return Tensor(dtypes, tags=frozenset(tags), why=why, origin=call.node)


CASTS: dict[str, Handler] = dict.fromkeys((*NAMED, "to", "type", "type_as"), _cast)
"""Conversions of tensors."""
