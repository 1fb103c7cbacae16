"""What an arm leaves behind: plain records that a run streamed to disk, so that a killed run is evidence too.

One line of JSON is one record, `{"record": "step", ...}`; `read_arm` turns the lines of all ranks into one `Arm`.
Numbers that were not measured are None. Gradients are always unscaled before they are judged.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mixprec.records import Finding, Location, OpRecord, TensorStats, to_json

__all__ = [
    "Arm",
    "ArmPlan",
    "Crash",
    "Event",
    "Examination",
    "Intervention",
    "ModuleRecord",
    "OptimizerRecord",
    "RegionRecord",
    "ScalerRecord",
    "StepRecord",
    "TracedOp",
    "WarningRecord",
    "read_arm",
    "write_record",
]


@dataclass(frozen=True)
class Intervention:
    """The one thing that an arm changes; the names are the files of `mixprec.doctor.interventions`.

    precision "fp32"|"bf16"|"fp16" (autocast regions and scaler) · explicit "fp32"|"bf16"|"fp16" (16-bit dtypes that the
    script names itself, such as `.half()`) · loss_scale 1.0 (fixed) · init_scale 1024.0 · learning_rate 0.1 (factor) ·
    warm_up 100 (steps) · clip 1.0 · adam_eps 1e-4 · pin_batches 4 · leave_out [17] (batch numbers) · unfused True ·
    math_attention True · eager True (torch.compile off) · tf32_off True · deterministic True ·
    fill_empty nan (what torch.empty holds) ·
    fp32_modules ["layers.3"] (module paths) · cast_cache_off True · cuda_policy True (CUDA's op list on the CPU)
    """

    name: str
    value: Any = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


@dataclass(frozen=True)
class ArmPlan:
    """An arm before it has run: what `next_arm` returns.

    `steps` are attempts per optimizer, None for as many as the examination wants; where they take less than `patience`
    seconds, up to three times as many. `trace` asks for a location arm:
    {"iterations": [0, 7]} runs these under the tracer, everything else before the last of them as ever, and ends.
    Iteration 0 begins where torch is imported; where the script ends or raises before it is over, it ends there.
    """

    name: str
    interventions: tuple[Intervention, ...] = ()
    steps: int | None = None
    trace: dict[str, Any] | None = None
    patience: float = 0.0


@dataclass(frozen=True)
class OptimizerRecord:
    """An optimizer as it was at its first step (or at the end, if it never stepped)."""

    optimizer: int
    kind: str
    site: Location = field(default_factory=Location)
    fused: bool = False
    lr: float | None = None
    eps: float | None = None
    betas: tuple[float, ...] | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    parameter_dtypes: dict[str, int] = field(default_factory=dict)
    """Elements by dtype, e.g. {"float32": 1000}."""
    state_dtypes: dict[str, int] = field(default_factory=dict)
    finite_at_first: bool = True
    """Whether its weights were finite before its first step."""
    parameters: int = 0
    parameters_of_model: int = 0
    """Parameters of this optimizer that belong to a module that ran forward."""
    parameters_with_grad_ever: int = 0
    orphans: int = 0
    """Parameters of the same models that had a gradient at a step at which this optimizer's had none, and that no
    optimizer holds.
    """
    shared_with: tuple[int, ...] = ()
    """Other optimizers that hold one of these parameters."""
    step_hooks: int = 0
    """Hooks that the script put around this optimizer's own step."""
    hook_site: Location = field(default_factory=Location)
    """The user's line that registered the last of them."""
    rank: int = 0


@dataclass(frozen=True)
class ScalerRecord:
    """A gradient scaler; the number is given in order of creation, never an id, which Python reuses."""

    scaler: int
    kind: str
    site: Location = field(default_factory=Location)
    enabled: bool = True
    init_scale: float | None = None
    growth_interval: int | None = None
    growth_factor: float | None = None
    backoff_factor: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class RegionRecord:
    """Autocast regions entered at one line with one setting."""

    site: Location
    device: str
    dtype: str
    enabled: bool
    cache: bool = True
    entered: int = 0
    modules: int = 0
    """Forward calls of leaf modules inside."""
    low_ops: int = 0
    """Matrix products and convolutions that ran in 16 bit inside, where they were counted."""
    in_thread: bool = False
    """Entered in another thread than the main one."""
    rank: int = 0


@dataclass(frozen=True)
class Event:
    """One call of the training protocol, in order.

    `kind`: scale, backward, unscale, clip, scaler_step, step, update, zero_grad, scheduler_step, grad (autograd.grad),
    scaler_created, scaler_saved, scaler_restored, scale_read, file_saved, file_loaded, converted, forward_begin,
    region_entered, interval_changed, growth_missed, weights_moved, empty_made.

    `data` holds what else is known, e.g. {"by_step": true} or {"explicit": false} for an unscale,
    {"of_scale": true} for a backward whose loss came out of `scale`, {"state": "scaled"} for a clip,
    {"in_region": "float16"} for a backward inside autocast, {"scale": 65536.0} for an update.
    """

    kind: str
    index: int
    iteration: int = 0
    """Number of optimizer-step attempts (of any optimizer) before it."""
    scaler: int | None = None
    optimizer: int | None = None
    site: Location = field(default_factory=Location)
    data: dict[str, Any] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True)
class StepRecord:
    """One attempt at an optimizer step, also one that a scaler skipped."""

    optimizer: int
    index: int
    """Attempts of this optimizer before it."""
    iteration: int
    scaler: int | None = None
    site: Location = field(default_factory=Location)
    loss: float | None = None
    """The last loss that was backpropagated, unscaled."""
    loss_dtype: str | None = None
    loss_shape: tuple[int, ...] = ()
    scale: float | None = None
    scale_after: float | None = None
    skipped: bool = False
    grad_norm: float | None = None
    """Global 2-norm of the unscaled gradients, before clipping; inf or nan where they were not finite."""
    carries: bool = False
    """Whether the gradients still carried the scale when they were read, right before they were unscaled."""
    grad_norm_at_step: float | None = None
    """The same right before the optimizer used them."""
    grad_amax: float | None = None
    zero_share: float | None = None
    """Share of gradient elements that are exactly 0."""
    subnormal_share: float | None = None
    """Share that is not 0 and below the smallest normal number of the precision in use (scaled, as they flowed)."""
    underflow_share: float | None = None
    """Share of 16-bit activation gradients that became 0 or subnormal where their float32 twins were not."""
    lr: float | None = None
    update_ratio: float | None = None
    """2-norm of what the step changed over the 2-norm of the weights (sampled)."""
    unchanged_share: float | None = None
    """Share of sampled elements with a gradient other than 0 that the step left bit-identical; of 16-bit weights alone
    where the optimizer has any.
    """
    decay_lost_share: float | None = None
    """Share of sampled weights that the step's decoupled weight decay, taken alone, leaves bit-identical."""
    weight_amax: float | None = None
    weights_finite: bool = True
    state_finite: bool = True
    buffers_finite: bool = True
    gradless: int = 0
    """Parameters of the optimizer without a gradient."""
    stale_grad_norm: float | None = None
    """Norm of what stood in `.grad` when the first backward after the previous step began (0 or None: cleared)."""
    micro_batches: int = 0
    """Backward passes since the step before."""
    accumulation_error: float | None = None
    """Relative error (2-norm, sampled) of gradients that were added up in 16 bits, against the same sum in float32."""
    divided_by: float | None = None
    """By how much the script itself divided the gradients between the last backward and the step (sampled norm), asked
    where a float16 region has no scaler.
    """
    batch: str | None = None
    """Fingerprint of the first tensors that entered the top-level module."""
    batch_finite: bool = True
    batch_amax: float | None = None
    first_bad_module: str | None = None
    """The first module whose output was not finite in this step's forward though its inputs were."""
    activation_zero_share: float | None = None
    """Share of the gradients of leaf modules' outputs (sampled, scaled, as they flowed) that is exactly 0; measured in
    iterations 0-2 and every tenth. In a float16 arm it includes what was flushed; compare with the float32 arm.
    """
    activation_tiny_share: float | None = None
    """The share of them that is not 0 and below 2^-14, the smallest normal number of float16, in whatever dtype."""
    finished: bool = True
    """False: the call raised, or the run ended inside it."""
    seconds: float | None = None
    rank: int = 0


@dataclass(frozen=True)
class ModuleRecord:
    """What went through one module over the whole arm."""

    path: str
    kind: str
    calls: int = 0
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    parameter_dtypes: tuple[str, ...] = ()
    buffer_dtypes: tuple[str, ...] = ()
    input_amax: float | None = None
    output_amax: float | None = None
    first_bad_iteration: int | None = None
    amax_by_iteration: tuple[float, ...] = ()
    """Largest output magnitude at a few iterations, to see a trend."""
    site: Location = field(default_factory=Location)
    """The user's line that first called it."""
    rank: int = 0


@dataclass(frozen=True)
class WarningRecord:
    """A warning that Python or torch raised."""

    category: str
    message: str
    site: Location = field(default_factory=Location)
    iteration: int = 0
    rank: int = 0


@dataclass(frozen=True)
class Crash:
    """The exception that ended the script. `frames` are the user's own frames, outermost first; `raised_in` the
    innermost frame of all, e.g. torch's.
    """

    kind: str
    message: str
    frames: tuple[Location, ...] = ()
    raised_in: str = ""
    traceback: str = ""
    iteration: int = 0
    in_region: str | None = None
    """dtype of the autocast region that was active, None outside."""
    in_backward: bool = False
    module: str | None = None
    module_kind: str | None = None
    tensors: tuple[TensorStats, ...] = ()
    """Tensors that the raising call was given, where they could be seen."""
    names: tuple[str, ...] = ()
    """What they are called there, e.g. "x" or "self.weight"."""
    rank: int = 0


@dataclass(frozen=True)
class TracedOp:
    """An op that the location arm singled out, with the role it plays.

    `first_inf`, `first_nan`, `nan_from_inf`, `given`, `hidden`: as `mixprec._trace.Origin` says. `source`: wrote an
    operand of one of these. `failed`: raised (without outputs). `flush`: lost small gradients, `measures` are
    (share that became 0, share that became subnormal, scale at which nothing is lost). `stagnant`: added to a 16-bit
    accumulator what is less than its last place. `saturating`: positions (they come from `arange` or are integers)
    beyond the format's exact integers. `hides`: replaced NaN or Inf by numbers. `cancels`: a difference of squares that
    is lost in the rounding of its operands. `noise`: random numbers that the script draws in 16 bits.
    `mixed`: met 16-bit and float32 operands and gave float32. `largest`: the largest output of a 16-bit op in forward.
    """

    role: str
    op: OpRecord
    iteration: int = 0
    source: str = ""
    """Text of the user's line."""
    constants: tuple[float, ...] = ()
    """Numbers that are written on that line."""
    measures: tuple[float, ...] = ()
    rank: int = 0


@dataclass(frozen=True)
class Arm:
    """A run of the script under interventions. `ended`: finished, stopped (step limit), crashed, timed_out, killed."""

    name: str
    interventions: tuple[Intervention, ...] = ()
    ended: str = "finished"
    returncode: int = 0
    seconds: float = 0.0
    ranks: int = 1
    optimizers: tuple[OptimizerRecord, ...] = ()
    scalers: tuple[ScalerRecord, ...] = ()
    regions: tuple[RegionRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    events: tuple[Event, ...] = ()
    modules: tuple[ModuleRecord, ...] = ()
    warnings: tuple[WarningRecord, ...] = ()
    ops: tuple[TracedOp, ...] = ()
    crash: Crash | None = None
    uncontrolled: tuple[str, ...] = ()
    """What the interventions could not reach, e.g. "parameters were made float16 by the script"."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Anything else that a judge needs, named: torch version, device, ..."""
    output_tail: str = ""

    def of(self, optimizer: int, rank: int = 0) -> tuple[StepRecord, ...]:
        """The steps of one optimizer on one rank."""
        return tuple(step for step in self.steps if step.optimizer == optimizer and step.rank == rank)

    def changes(self, name: str) -> Any:
        """The value of the intervention `name`; None if this arm does not make it."""
        return next((item.value for item in self.interventions if item.name == name), None)


@dataclass(frozen=True)
class Examination:
    """Everything that is known of a script: what lint read, and what every arm left behind. `arms[0]` observes, for
    more than `wanted_steps` where it may have `patience`.
    """

    command: tuple[str, ...]
    arms: tuple[Arm, ...] = ()
    lint: tuple[Finding, ...] = ()
    wanted_steps: int = 200
    patience: float = 0.0
    seconds_left: float = math.inf

    def arm(self, name: str) -> Arm | None:
        """The arm of that name; None if it was not run."""
        return next((arm for arm in self.arms if arm.name == name), None)

    def with_arm(self, arm: Arm) -> Examination:
        """The same examination with one more arm."""
        return dataclasses.replace(self, arms=(*self.arms, arm))


_RECORDS: dict[str, type[Any]] = {
    "optimizer": OptimizerRecord,
    "scaler": ScalerRecord,
    "region": RegionRecord,
    "step": StepRecord,
    "event": Event,
    "module": ModuleRecord,
    "warning": WarningRecord,
    "crash": Crash,
    "op": TracedOp,
}
_NAMES = {kind: name for name, kind in _RECORDS.items()}
_PLACES = {
    "optimizer": "optimizers",
    "scaler": "scalers",
    "region": "regions",
    "step": "steps",
    "event": "events",
    "module": "modules",
    "warning": "warnings",
    "op": "ops",
}

R = TypeVar("R")


def write_record(record: Any) -> str:
    """One line of JSON, with its newline. Infinities and NaN are written as JSON does not allow them: as strings."""
    body = {"record": _NAMES[type(record)], **to_json(record)}
    return json.dumps(_spelled(body)) + "\n"


def read_arm(arm: Arm, lines: Iterable[str]) -> Arm:
    """`arm` with the records of `lines`; a torn line (the last of a killed run) is passed over.

    Of an optimizer, scaler, region or module the last record counts. Lines `{"record": "fact", "name": ..., "value":
    ...}` and `{"record": "uncontrolled", "what": ...}` add to `facts` and `uncontrolled`.
    """
    found: dict[str, list[Any]] = {place: [] for place in _PLACES.values()}
    crash, facts, uncontrolled = arm.crash, dict(arm.facts), list(arm.uncontrolled)
    for name, body in _parsed(lines):
        if name == "fact":
            facts[body["name"]] = body["value"]
        elif name == "uncontrolled":
            uncontrolled += [body["what"]] if body["what"] not in uncontrolled else []
        elif name == "crash":
            crash = crash or _build(Crash, body)
        elif name in _PLACES:
            found[_PLACES[name]].append(_build(_RECORDS[name], body))
    latest: dict[str, Any] = {place: _latest(records) for place, records in found.items()}
    return dataclasses.replace(arm, crash=crash, facts=facts, uncontrolled=tuple(uncontrolled), **latest)


def _parsed(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in lines:
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict) and "record" in body:
            yield body.pop("record"), body


def _latest(records: list[Any]) -> tuple[Any, ...]:
    """The last record of each thing, in order of its first one; steps, events, warnings and ops all count."""
    kept: dict[Any, Any] = {}
    for number, record in enumerate(records):
        kept[_identity(record, number)] = record
    return tuple(kept.values())


def _identity(record: Any, number: int) -> Any:
    if isinstance(record, OptimizerRecord):
        return record.rank, record.optimizer
    if isinstance(record, ScalerRecord):
        return record.rank, record.scaler
    if isinstance(record, RegionRecord):
        return record.rank, record.site, record.device, record.dtype, record.enabled, record.cache, record.in_thread
    if isinstance(record, ModuleRecord):
        return record.rank, record.path, record.kind
    return number


def _build(kind: type[R], body: dict[str, Any]) -> R:
    """`body` as a record of `kind`; keys of a newer schema are passed over."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type] # every kind in the table is a dataclass
    return kind(**{name: _value(name, value) for name, value in body.items() if name in fields})


_NESTED: dict[str, type[Any]] = {"site": Location, "hook_site": Location, "location": Location, "op": OpRecord}
_LISTS: dict[str, type[Any]] = {
    "frames": Location,
    "tensors": TensorStats,
    "inputs": TensorStats,
    "outputs": TensorStats,
    "exact": TensorStats,
}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and name in _NESTED:
        return _build(_NESTED[name], value)
    if isinstance(value, dict):
        return {key: _value("", item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_build(_LISTS[name], item) if name in _LISTS else _value("", item) for item in value)
    if isinstance(value, str) and value in _SPELLINGS:
        return _SPELLINGS[value]
    return value


_SPELLINGS = {"@inf": math.inf, "@-inf": -math.inf, "@nan": math.nan}


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "@nan" if math.isnan(value) else "@inf" if value > 0 else "@-inf"
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    return value
