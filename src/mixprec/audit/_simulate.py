"""What a recorded step would take in another precision, computed from the record alone.

Casts that autocast made are taken out, which leaves the step as it is written; then the policy's rules decide the dtype
of each op's inputs and results again. Values are followed from op to op, copies that a rule makes are memory of their
own, and backward releases what its forward op kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mixprec._policy import CastRule, Policy, op_of
from mixprec.audit._casts import is_cast
from mixprec.audit._log import Freed, Held, Kind, Op, Phase, Saved, Step, is_half, width

__all__ = ["Precision", "Simulated", "Work", "each_precision", "simulate"]


@dataclass(frozen=True)
class Precision:
    """A way to train. `low` is the dtype of the regions, "" for none; `weights` the dtype that weights are stored in.

    `masters` keeps a float32 copy of each weight, `extra` as many bytes of compensation per weight; `state` is the
    number of bytes of one element of optimizer state, `narrowing` that of rounding one element of the largest weight.
    """

    name: str
    low: str = ""
    weights: str = "float32"
    masters: bool = False
    extra: int = 0
    state: float = 4.0
    narrowing: int = 0


@dataclass(frozen=True)
class Work:
    """One op as it would run: the dtype that it computes in, its FLOPs, and the bytes that it reads and writes."""

    flops: int
    dtype: str
    bytes: int
    launches: int = 1


@dataclass(frozen=True)
class Simulated:
    """Bytes by cause, and the work. `saved` is kept for backward at the end of forward, `casts` are of weights."""

    weights: int
    masters: int
    gradients: int
    state: int
    extra: int
    buffers: int
    casts: int
    saved: int
    after_forward: int
    peak: int
    work: tuple[Work, ...]


Key = tuple[object, ...]
"""A piece of memory: ("v", storage) a value, ("c", …) a copy for one op, ("w", storage) a cached cast of a weight."""

_NORMS = frozenset({"native_layer_norm", "native_batch_norm", "native_group_norm", "_native_batch_norm_legit"})
_FIRST_DECIDES = _NORMS | {"cudnn_batch_norm", "_fused_rms_norm", "prelu", "_prelu_kernel"}
_WIDE_EXTRAS = _FIRST_DECIDES | {
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
}
SMALL_STATE = 4096
"""Weights with fewer elements keep 32-bit state in the 8-bit optimizers of bitsandbytes and torchao.

Source: https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/optim/optimizer.py
"""


def simulate(step: Step, precision: Precision, policy: Policy) -> Simulated:
    """`step` in `precision` under `policy`. **Cost**: pure Python, linear in the number of events."""
    return _Run(step, precision, policy).result()


class _Run:
    def __init__(self, step: Step, precision: Precision, policy: Policy) -> None:
        self.step = step
        self.precision = precision
        self.policy = policy
        self.rules: dict[tuple[str, str], CastRule] = {}
        self.alias = _aliases(step)
        self.weights = _first_owners(step.held, Kind.WEIGHT)
        self.owned = {h.ref.storage: h.kind for h in (*step.earlier, *step.held)}
        self.dtypes: dict[int, str] = {}
        self.live: dict[Key, int] = {}
        self.now = 0
        self.peak = 0
        self.kept: dict[Key, int] = {}
        self.cached: dict[int, int] = {}
        self.work: list[Work] = []
        self.covered = not any(op.low for op in step.ops())
        self.halved: dict[int, bool] = {}
        self.last_use = self._last_uses()
        self.inner = {n for op in step.ops(Phase.FORWARD) if op.cls and not op.factory for n in op.made}

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def result(self) -> Simulated:
        fixed = self._fixed()
        base = sum(fixed.values())
        for number in self.step.alive:
            if self.owned.get(number) in (None, Kind.GRADIENT, Kind.CAST, Kind.SAVED) and number not in self.alias:
                self._hold(("v", number), self._size(number))
        after = self._forward()
        saved = sum(size for key, size in self.kept_sizes().items() if key[0] != "w")
        casts = sum(self.cached.values())
        self._backward()
        self._optimizer()
        return Simulated(
            **fixed,
            gradients=self._gradients(),
            casts=casts,
            saved=saved,
            after_forward=base + after,
            peak=base + self.peak,
            work=tuple(self.work),
        )

    def _fixed(self) -> dict[str, int]:
        """What is there all the time."""
        step, precision = self.step, self.precision
        elements = {h.name: _elements(h) for h in step.held if h.kind is Kind.WEIGHT}
        each = width(precision.weights)
        trained = self._trained()
        state = 0.0
        for held in step.held:
            if held.kind is Kind.STATE:
                count = _elements(held)
                small = precision.state < 2 and count < SMALL_STATE
                known = width(held.ref.dtype) if width(held.ref.dtype) and held.ref.shape else 0
                state += count * (4.0 if small else precision.state) if known else held.ref.bytes
        return {
            "weights": sum(n * each for n in elements.values()),
            "masters": 4 * trained if precision.masters else 0,
            "state": round(state),
            "extra": precision.extra * trained,
            "buffers": sum({h.ref.storage: h.ref.bytes for h in step.held if h.kind is Kind.BUFFER}.values()),
        }

    def _gradients(self) -> int:
        return self._trained() * width(self.precision.weights)

    def _trained(self) -> int:
        """Elements that have a gradient."""
        return sum(_elements(h) for h in self.step.held if h.kind is Kind.GRADIENT)

    def kept_sizes(self) -> dict[Key, int]:
        """What backward needs, each piece once."""
        return {key: self.live[key] for key in self.kept if key in self.live}

    # ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _hold(self, key: Key, size: int) -> None:
        if key not in self.live and size:
            self.live[key] = size
            self.now += size
            self.peak = max(self.peak, self.now)

    def _drop(self, key: Key) -> None:
        self.now -= self.live.pop(key, 0)

    def _size(self, number: int) -> int:
        storage = self.step.storages[number]
        seen = width(storage.dtype)
        return storage.bytes * width(self._dtype(number)) // seen if seen else storage.bytes

    def _dtype(self, number: int) -> str:
        """What the value in a storage is stored in."""
        number = self._value(number)
        known = self.dtypes.get(number)
        if known is None:
            seen = self.step.storages[number].dtype
            weight = self.owned.get(number) in (Kind.WEIGHT, Kind.GRADIENT) and seen in (
                "float32",
                "float16",
                "bfloat16",
            )
            known = self.dtypes[number] = self.precision.weights if weight else seen
        return known

    def _value(self, number: int) -> int:
        while number in self.alias:
            number = self.alias[number]
        return number

    def _last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for index, event in enumerate(self.step.events):
            if isinstance(event, Op) and event.phase is Phase.FORWARD:
                for ref in (*event.inputs, *event.outputs):
                    if ref.storage >= 0:
                        last[self._value(ref.storage)] = index
        return last

    # ── forward ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _forward(self) -> int:
        """Runs the forward ops; what is held when the largest forward pass is over."""
        pending: list[Saved] = []
        largest, previous = 0, None
        copies: dict[int, Key] = {}
        freed: set[int] = set()
        for index, event in enumerate(self.step.events):
            if isinstance(event, Saved):
                if event.output and previous is not None:
                    self._keep(event, previous, copies)
                else:
                    pending.append(event)
            elif isinstance(event, Freed):
                freed.add(event.storage)
                self._freed(event.storage)
            elif isinstance(event, Op) and event.phase is Phase.BACKWARD:
                break
            elif isinstance(event, Op) and event.phase is Phase.FORWARD:
                if event.outputs and event.outputs[0].storage in self.alias:
                    continue
                copies = self._run(event)
                for saved in pending:
                    self._keep(saved, event, copies)
                pending, previous = [], event
                for key in [k for k in copies.values() if k not in self.kept and k[0] == "c"]:
                    self._drop(key)
                self._drop_unused(index, event)
                largest = self.now
        for number in [n for n in self.cached if ("w", n) not in self.kept]:
            self._drop(("w", number))
        return max(self.now, min(largest, self.now))

    def _run(self, op: Op) -> dict[int, Key]:
        """The op's copies and results; which key holds each input as the op sees it."""
        rule = self._rule(op)
        seen: dict[int, Key] = {}
        moved = 0
        into: list[str] = []
        for ref in op.inputs:
            if ref.storage < 0:
                continue
            number = self._value(ref.storage)
            has = self._dtype(number) if width(ref.dtype) else ref.dtype
            wants = _wanted(rule, has, self.precision.low)
            into.append(wants if width(wants) else "")
            moved += _bytes(ref.bytes, ref.dtype, wants)
            if wants == has:
                seen[ref.storage] = ("v", number)
                continue
            key: Key = ("w", number) if number in self.weights and is_half(wants) else ("c", number, id(op), wants)
            if key not in self.live:
                self.work.append(
                    Work(0, wants, _bytes(ref.bytes, ref.dtype, has) + _bytes(ref.bytes, ref.dtype, wants))
                )
            size = _bytes(ref.bytes, ref.dtype, wants)
            if key[0] == "w":
                self.cached.setdefault(number, size)
            self._hold(key, size)
            seen[ref.storage] = key
        result = self._result(op, rule, [d for d in into if d])
        for index, ref in enumerate(op.outputs):
            if ref.storage in op.made:
                wide = index > 0 and op.name in _WIDE_EXTRAS and bool(width(ref.dtype))
                self.dtypes[ref.storage] = "float32" if wide else result if width(ref.dtype) and result else ref.dtype
                self._hold(("v", ref.storage), self._size(ref.storage))
            moved += _bytes(ref.bytes, ref.dtype, self._dtype(ref.storage) if ref.storage >= 0 else ref.dtype)
        compute = max((d for d in into if d), key=width, default="")
        first = next((d for d in into if d), "")
        self.halved[op.sequence] = self.halved.get(op.sequence, False) or is_half(first)
        if op.made or op.flops:
            self.work.append(Work(op.flops, compute, moved))
        return seen

    def _rule(self, op: Op) -> CastRule:
        if not self.precision.low or op.explicit or not (op.low or self.covered):
            return CastRule.KEEP
        key = (op.func, op.name)
        if key not in self.rules:
            names = [n for n in (op_of(op.func) if op.func else None, op_of(op.name), op_of(op.name.strip("_"))) if n]
            found = (self.policy.explain(name).rule for name in names)
            rule = next((r for r in found if r is not CastRule.KEEP), CastRule.KEEP)
            if rule is CastRule.KEEP and op.flops:
                rule = CastRule.LOW
            self.rules[key] = CastRule.KEEP if op.func.endswith("_") and not op.func.startswith("_") else rule
        return self.rules[key]

    def _result(self, op: Op, rule: CastRule, into: list[str]) -> str:
        """The dtype of the first result; "" where the record's own stands."""
        if op.explicit or op.factory or not op.outputs or not into:
            return op.outputs[0].dtype if op.outputs else ""
        if rule is CastRule.LOW:
            return self.precision.low
        if rule in (CastRule.FP32, CastRule.FP32_OUT):
            return "float32"
        if op.name in _FIRST_DECIDES:
            return into[0]
        if op.name == "_to_copy":
            return op.outputs[0].dtype
        with_shape = [
            self._dtype(ref.storage) for ref in op.inputs if ref.shape and ref.storage >= 0 and width(ref.dtype)
        ]
        return max(with_shape or into, key=width)

    def _keep(self, saved: Saved, op: Op, copies: dict[int, Key]) -> None:
        number = self._value(saved.ref.storage)
        key = ("v", number) if saved.output else copies.get(saved.ref.storage, ("v", number))
        if key == ("v", number) and self.owned.get(number) in (Kind.WEIGHT, Kind.BUFFER, Kind.MASTER):
            return
        if key[0] == "v":
            self._hold(key, self._size(number))
        self.kept[key] = min(self.kept.get(key, op.sequence), op.sequence)

    def _freed(self, number: int) -> None:
        if number not in self.alias and ("v", number) not in self.kept:
            self._drop(("v", number))

    def _drop_unused(self, index: int, op: Op) -> None:
        """What the record kept for backward and this precision does not goes when nothing more is done with it."""
        recorded = self._recorded_saves()
        for ref in (*op.inputs, *op.outputs):
            number = self._value(ref.storage) if ref.storage >= 0 else -1
            done = self.last_use.get(number) == index and ("v", number) not in self.kept
            if done and number in recorded and number in self.inner:
                self._drop(("v", number))

    def _recorded_saves(self) -> frozenset[int]:
        if not hasattr(self, "_saves"):
            self._saves = frozenset(self._value(s.ref.storage) for s in self.step.saved)
        return self._saves

    # ── backward and optimizer ──────────────────────────────────────────────────────────────────────────────────────

    def _backward(self) -> None:
        begun = False
        for event in self.step.events:
            if isinstance(event, Op):
                begun = begun or event.phase is Phase.BACKWARD
                if event.phase is Phase.BACKWARD:
                    self._release(event.sequence)
                    self._gradient(event)
            elif isinstance(event, Freed) and begun:
                number = event.storage
                if number not in self.alias and ("v", number) not in self.kept:
                    self._drop(("v", number))

    def _release(self, sequence: int) -> None:
        if sequence > 2**62:
            return
        for key in [key for key, needed in self.kept.items() if needed > sequence]:
            del self.kept[key]
            self._drop(key)

    def _gradient(self, op: Op) -> None:
        low = self.halved.get(op.sequence, False)
        moved = 0
        for ref in (*op.inputs, *op.outputs):
            moved += _bytes(ref.bytes, ref.dtype, self._narrowed(ref.dtype, low))
        cast = is_cast(op) and not op.explicit
        for number in op.made:
            target = self.alias.get(number, number)
            if target != number and self.owned.get(target) is Kind.GRADIENT and low:
                self._hold(("t", target), self.step.storages[number].bytes)
        made = [number for number in op.made if number not in self.alias]
        owned = [number for number in made if self.owned.get(number) is Kind.GRADIENT]
        between = owned if low and not is_half(self.precision.weights) and not cast else []
        for number in between:
            self._hold(("t", number), self.step.storages[number].bytes // 2)
        for number in made:
            storage = self.step.storages[number]
            self.dtypes[number] = self.precision.weights if number in owned else self._narrowed(storage.dtype, low)
            self._hold(("v", number), self._size(number))
            self._drop(("t", number))
        if (op.made or op.flops) and not (cast and not self.precision.low):
            compute = self._narrowed("float32", low)
            self.work.append(Work(op.flops, compute, moved))

    def _narrowed(self, dtype: str, low: bool) -> str:
        if not width(dtype) or dtype == "float64":
            return dtype
        return self.precision.low if low else "float32"

    def _optimizer(self) -> None:
        """Temporaries as recorded; with masters, float32 gradients take the place of the 16-bit ones."""
        for key in list(self.kept):
            self._drop(key)
        if self.precision.masters:
            self._hold(("gradients",), self._trained() * (4 - width(self.precision.weights)))
        elif self.precision.weights != "float32":
            largest = max((_elements(h) for h in self.step.held if h.kind is Kind.GRADIENT), default=0)
            self._hold(("chunk",), 8 * min(2**24, self._trained()) + self.precision.narrowing * largest)
        for event in self.step.events:
            if isinstance(event, Op) and event.phase is Phase.OPTIMIZER:
                moved = sum(ref.bytes for ref in (*event.inputs, *event.outputs))
                self.work.append(Work(0, "float32", moved))
                for number in event.made:
                    if self.owned.get(number) is not Kind.STATE:
                        self._hold(("v", number), self.step.storages[number].bytes)
            elif isinstance(event, Freed) and event.storage not in self.alias:
                self._drop(("v", event.storage))


def _aliases(step: Step) -> dict[int, int]:
    """Storage of each copy that autocast or its backward made -> what it copies.

    In backward it is the other way round where the copy is a weight's gradient: there the 16-bit one is in between.
    """
    gradients = {h.ref.storage for h in step.held if h.kind is Kind.GRADIENT}
    found = {}
    for op in step.ops(Phase.FORWARD, Phase.BACKWARD):
        if not is_cast(op) or op.explicit or not op.made or op.inputs[0].storage < 0:
            continue
        source, result = op.inputs[0].storage, op.outputs[0].storage
        if op.phase is Phase.FORWARD and op.low:
            found[result] = source
        elif op.phase is Phase.BACKWARD and result in gradients:
            found[source] = result
        elif op.phase is Phase.BACKWARD:
            found[result] = source
    return found


def _first_owners(held: tuple[Held, ...], kind: Kind) -> frozenset[int]:
    return frozenset(h.ref.storage for h in held if h.kind is kind)


def _elements(held: Held) -> int:
    count = 1
    for size in held.ref.shape:
        count *= size
    return count


def _wanted(rule: CastRule, has: str, low: str) -> str:
    if has not in ("float32", "float16", "bfloat16"):
        return has
    if rule is CastRule.LOW:
        return low
    return "float32" if rule is CastRule.FP32 else has


def _bytes(size: int, seen: str, dtype: str) -> int:
    """`size` bytes of dtype `seen`, stored as `dtype`."""
    return size * width(dtype) // width(seen) if width(seen) and width(dtype) else size


def each_precision(low: tuple[str, ...] = ("float16", "bfloat16")) -> Iterator[Precision]:
    """The rows of the table."""
    yield Precision("fp32")
    for dtype, short in (("float16", "fp16"), ("bfloat16", "bf16")):
        if dtype in low:
            yield Precision(f"{short}-mixed", dtype)
            yield Precision(f"{short}-master", dtype, dtype, masters=True)
    yield Precision("bf16 + Kahan summation", "bfloat16", "bfloat16", extra=2, narrowing=3)
    yield Precision("bf16 + stochastic rounding", "bfloat16", "bfloat16", narrowing=15)
    yield Precision("bf16-mixed + 8-bit optimizer", "bfloat16", state=1.0 + 4 / 256)
