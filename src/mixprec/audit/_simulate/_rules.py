"""Which dtype an op's inputs are cast to, and which one its results have."""

from __future__ import annotations

from collections.abc import Sequence

from mixprec._policy import CastRule, Policy, op_of
from mixprec.audit._log import Op, width

__all__ = ["Rules", "resized", "result_of", "wanted", "wide_extras"]

_NORMS = frozenset({"native_layer_norm", "native_batch_norm", "native_group_norm", "_native_batch_norm_legit"})
_FIRST_DECIDES = _NORMS | {"cudnn_batch_norm", "_fused_rms_norm", "prelu", "_prelu_kernel"}
_WIDE_EXTRAS = _FIRST_DECIDES | {
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
}


class Rules:
    """The rule of each op under `policy` in regions of dtype `low`. `everywhere` says that all code is in one."""

    def __init__(self, policy: Policy, low: str, everywhere: bool) -> None:
        self.policy = policy
        self.low = low
        self.everywhere = everywhere
        self._known: dict[tuple[str, str], CastRule] = {}

    def of(self, op: Op) -> CastRule:
        """What happens to the op's inputs."""
        if not self.low or op.explicit or not (op.low or self.everywhere):
            return CastRule.KEEP
        key = (op.func, op.name)
        if key not in self._known:
            self._known[key] = self._found(op)
        return self._known[key]

    def _found(self, op: Op) -> CastRule:
        if op.func.endswith("_") and not op.func.startswith("_"):
            return CastRule.KEEP
        names = [n for n in (op_of(op.func) if op.func else None, op_of(op.name), op_of(op.name.strip("_"))) if n]
        found = (self.policy.explain(name).rule for name in names)
        rule = next((r for r in found if r is not CastRule.KEEP), CastRule.KEEP)
        return CastRule.LOW if rule is CastRule.KEEP and op.flops else rule


def wanted(rule: CastRule, has: str, low: str) -> str:
    """The dtype that an input in `has` is cast to."""
    if has not in ("float32", "float16", "bfloat16"):
        return has
    if rule is CastRule.LOW:
        return low
    return "float32" if rule is CastRule.FP32 else has


def result_of(op: Op, rule: CastRule, low: str, into: Sequence[str], with_shape: Sequence[str]) -> str:
    """The dtype of the first result; "" where the record's own stands.

    `into` are the dtypes of the inputs as the op sees them, `with_shape` those of the values that are no scalars.
    """
    if op.explicit or op.factory or not op.outputs or not into:
        return op.outputs[0].dtype if op.outputs else ""
    if rule is CastRule.LOW:
        return low
    if rule in (CastRule.FP32, CastRule.FP32_OUT):
        return "float32"
    if op.name in _FIRST_DECIDES:
        return into[0]
    if op.name == "_to_copy":
        return op.outputs[0].dtype
    return max(with_shape or into, key=width)


def wide_extras(op: Op) -> bool:
    """Whether the results behind the first one are statistics in float32."""
    return op.name in _WIDE_EXTRAS


def resized(size: int, seen: str, dtype: str) -> int:
    """`size` bytes of dtype `seen`, stored as `dtype`."""
    return size * width(dtype) // width(seen) if width(seen) and width(dtype) else size
