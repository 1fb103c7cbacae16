"""A product is fast in 16 bits if its inputs are 16-bit, its sizes are aligned, and it is large enough; each of the
three is answered per layer, with the size to use instead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from mixprec._policy import CastRule, Policy, op_of
from mixprec.audit._log import Op, Phase, Product, Step, is_half, width
from mixprec.records import Location

__all__ = ["ALIGNMENT", "LayerRow", "Products", "Why", "padded", "products_of", "worth_padding"]

ALIGNMENT = 8
"""Elements of 16 bits in 16 bytes, what the fast kernels load at once.

Source: https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

WASTE = 1 / 8
"""Padding that adds more than this share of work to a dimension is not advised: the size is the problem's own."""


class Why:
    """Why a product did not run in 16 bits."""

    OUTSIDE = "outside every autocast region"
    LISTED = "on the float32 list of this device"
    IN_PLACE = "in-place and out= forms are not cast"
    FLOAT64 = "float64 is never cast"
    CUSTOM = "backward of a custom function, which does not run under autocast"
    UNLISTED = "the op is on no list, and its inputs are float32"


@dataclass(frozen=True)
class LayerRow:
    """The products of one op in one module, forward and backward together.

    `dtype` is what they computed in, `why_not` a reason if it is not 16-bit. `unaligned` are the sizes that are no
    multiple of 8 and `padded` what they would be; `worth` tells that padding adds little work.
    """

    module: str
    cls: str
    op: str
    location: Location
    dtype: str
    flops: int
    share: float
    calls: int
    product: Product | None
    why_not: str
    unaligned: tuple[int, ...]
    padded: tuple[int, ...]
    worth: bool

    @property
    def largest(self) -> int:
        """FLOPs of one forward product."""
        return 0 if self.product is None else 2 * math.prod((self.product.m, self.product.n, self.product.k))


@dataclass(frozen=True)
class Products:
    """The FLOPs of a step. `typical` is the FLOPs of the product in which the middle FLOP is done."""

    flops: int
    low_flops: int
    unaligned_flops: int
    typical: int
    count: int
    layers: tuple[LayerRow, ...]

    @property
    def low_share(self) -> float:
        """The part of all FLOPs that ran on 16-bit inputs."""
        return self.low_flops / self.flops if self.flops else 0.0

    @property
    def unaligned_share(self) -> float:
        """The part of all FLOPs in products with a size that padding would align at little cost."""
        return self.unaligned_flops / self.flops if self.flops else 0.0


def products_of(step: Step, policy: Policy) -> Products:
    """The products of `step`. **Cost**: pure Python, linear in the number of ops."""
    ops = [op for op in step.ops() if op.flops]
    total = sum(op.flops for op in ops)
    grouped: dict[tuple[str, str, str, int | None, str], list[Op]] = defaultdict(list)
    for op in ops:
        grouped[op.module, op.cls, op.func, op.location.line, _computes_in(op)].append(op)
    layers = tuple(sorted((_layer(group, total, policy) for group in grouped.values()), key=lambda row: -row.flops))
    return Products(
        flops=total,
        low_flops=sum(op.flops for op in ops if is_half(_computes_in(op))),
        unaligned_flops=sum(row.flops for row in layers if row.worth),
        typical=_middle(ops),
        count=len(ops),
        layers=layers,
    )


def padded(size: int, to: int = ALIGNMENT) -> int:
    """The next multiple of `to`; 8, or 64 where the size is large enough to afford it."""
    eights = -(-size // to) * to
    sixty_fours = -(-size // 64) * 64
    return sixty_fours if sixty_fours - size <= size * WASTE / 4 else eights


def worth_padding(size: int) -> bool:
    """Whether `size` is unaligned and aligning it adds little."""
    return size % ALIGNMENT != 0 and (-size) % ALIGNMENT <= size * WASTE


def _layer(ops: list[Op], total: int, policy: Policy) -> LayerRow:
    first = next((op for op in ops if op.phase is not Phase.BACKWARD), ops[0])
    dtype = _computes_in(first)
    sizes = _sizes(ops)
    unaligned = tuple(size for size in sizes if size % ALIGNMENT)
    flops = sum(op.flops for op in ops)
    return LayerRow(
        module=first.module,
        cls=first.cls,
        op=first.func or first.name,
        location=replace(first.location, module=first.module or None, op=first.func or first.name),
        dtype=dtype,
        flops=flops,
        share=flops / total if total else 0.0,
        calls=sum(1 for op in ops if op.phase is not Phase.BACKWARD) or len(ops),
        product=first.product,
        why_not="" if is_half(dtype) else _why_not(first, dtype, policy),
        unaligned=unaligned,
        padded=tuple(padded(size) for size in unaligned),
        worth=bool(unaligned) and all(worth_padding(size) for size in unaligned),
    )


def _sizes(ops: Iterable[Op]) -> tuple[int, ...]:
    """The sizes that should be multiples of 8, each once; backward's are those of forward in another order."""
    forward = [op.product.aligned for op in ops if op.product is not None and op.phase is not Phase.BACKWARD]
    every = forward or [op.product.aligned for op in ops if op.product is not None]
    return tuple(dict.fromkeys(size for sizes in every for size in sizes))


def _computes_in(op: Op) -> str:
    """The widest dtype among the first inputs, those that are multiplied."""
    dtypes = [ref.dtype for ref in op.inputs[:3] if width(ref.dtype) and ref.bytes]
    return max(dtypes, key=width, default="")


def _why_not(op: Op, dtype: str, policy: Policy) -> str:
    if dtype == "float64":
        return Why.FLOAT64
    if op.phase is Phase.BACKWARD:
        return Why.CUSTOM
    if not op.low:
        return Why.OUTSIDE
    name = op_of(op.func) or op_of(op.name)
    if op.func.endswith("_") and not op.func.startswith("_"):
        return Why.IN_PLACE
    rule = policy.explain(name).rule if name is not None else CastRule.KEEP
    if rule in (CastRule.FP32, CastRule.FP32_OUT):
        return Why.LISTED
    return Why.IN_PLACE if rule is CastRule.LOW else Why.UNLISTED


def _middle(ops: list[Op]) -> int:
    """FLOPs of the product at half of all FLOPs, products in order of size."""
    sizes = sorted(op.flops for op in ops)
    half, so_far = sum(sizes) / 2, 0
    for size in sizes:
        so_far += size
        if so_far >= half:
            return size
    return 0
