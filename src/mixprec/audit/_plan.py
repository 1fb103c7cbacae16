"""How a running script is observed: a few steps are watched, a few are timed with nothing in the way, then it may end.

A step's precision is the dtype of the regions that it entered. Each precision that shows up is watched once, so a
script that runs a float32 control and a 16-bit part in one process gives both, and their times can be compared where
the optimizers hold parameters of the same shapes.
"""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer

from mixprec._hardware import probe
from mixprec._taps import Listener
from mixprec._trace import is_user_file, user_site
from mixprec.audit._assemble import assemble
from mixprec.audit._counters import with_counters
from mixprec.audit._flags import Flags, flags_now
from mixprec.audit._limits import Limits
from mixprec.audit._log import Step
from mixprec.audit._measure import forced, quick
from mixprec.audit._memory import main_device
from mixprec.audit._nesting import Nesting
from mixprec.audit._record import Recording
from mixprec.audit._report import AuditReport, StepTime, Timing
from mixprec.audit._steps import cut, typical
from mixprec.audit._storages import dtype_name
from mixprec.audit._watch import region_dtype
from mixprec.audit.advice import advise
from mixprec.records import Location

__all__ = ["Plan"]

WIDE = "float32"


@dataclass
class _Watched:
    """One precision's recording, and the step that stands for it."""

    step: Step
    flags: Flags
    problems: list[str]
    shapes: tuple[Any, ...]
    recorded: int


@dataclass
class _Times:
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


class Plan(Listener):
    """Decides step by step whether to watch, to time or to end. `end` is called when enough was seen.

    **Cost**: while it watches, what a `Watch` costs; while it times, a Python call per region, backward and step.
    """

    def __init__(self, end: Callable[[], None], limits: Limits, *, measure: bool = False) -> None:
        self.end = end
        self.limits = limits
        self.measures = [torch.float32, torch.bfloat16, torch.float16] if measure else []
        self.recording: Recording | None = None
        self.watched: dict[str, _Watched] = {}
        self.times: dict[tuple[str, tuple[Any, ...]], _Times] = defaultdict(_Times)
        self.forcing: tuple[str, contextlib.ExitStack] | None = None
        self.forced_times: dict[str, list[float]] = {}
        self.problems: list[str] = []
        self.unit = ""
        self.counts: Counter[str] = Counter()
        self.low = ""
        self.recorded_low = ""
        self.over = False
        self.leader: weakref.ref[Optimizer] | None = None
        self.shapes: tuple[Any, ...] = ()
        self.last: float | None = None
        self.last_busy = 0.0
        self.waiting = 0.0
        self.since: float | None = None
        self.in_scaler = False
        self.nesting = Nesting()
        self.root: weakref.ref[nn.Module] | None = None
        self.called_in = ""
        self.may_train = False
        self.flags_at: dict[str, Location] = {}
        self.data_at = Location()
        self._first = register_module_forward_pre_hook(self._begin_in_module)

    def failed(self, event: str, error: Exception) -> None:
        """Kept for the report."""
        if len(self.problems) < 5:
            self.problems.append(f"{event}: {type(error).__name__}: {error}")

    # ── what the script does ────────────────────────────────────────────────────────────────────────────────────────

    def region_entered(self, region: torch.autocast) -> None:
        """A new precision begins to be watched where its first region is entered."""
        self._settle()
        dtype = dtype_name(region.fast_dtype) if region._enabled and region.fast_dtype is not None else ""
        if dtype in ("float16", "bfloat16"):
            if self.recording is None and dtype not in self.watched and self.forcing is None:
                self._begin()
            elif self.recording is not None and not self.recorded_low and self._complete():
                self._finish()
                self._begin()
            self.low = self.recorded_low = dtype
        if self.recording is not None:
            self.recording.region_entered(region)

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        """A script without modules and regions begins here."""
        if self.recording is not None:
            self.recording.before_backward(outputs)

    def backward_done(self, outputs: tuple[Tensor, ...]) -> None:
        """The end of a step where no optimizer steps."""
        self.counts["backward"] += 1
        if self.recording is not None:
            self.recording.backward_done(outputs)
        if self.unit == "" and self.counts["backward"] >= 6:
            self.unit = "backward"
        self.over = self.unit == "backward"

    def _settle(self) -> None:
        """A backward pass ended a step. Not acted on while it returns: the watch's own handler is above it then."""
        if self.over:
            self.over = False
            self._boundary()

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """As in `Recording`."""
        self.in_scaler = True
        if self.recording is not None:
            self.recording.before_scaler_step(scaler, optimizer)

    def scaler_stepped(self, scaler: Any, optimizer: Optimizer, result: Any) -> None:
        """A step, applied or skipped."""
        self.in_scaler = False
        if self.recording is not None:
            self.recording.scaler_stepped(scaler, optimizer, result)
        self._stepped(optimizer)

    def before_step(self, optimizer: Optimizer) -> None:
        """As in `Recording`."""
        self.over = False
        self.nesting.begin(optimizer)
        if self.recording is not None:
            self.recording.before_step(optimizer)

    def stepped(self, optimizer: Optimizer) -> None:
        """A step without a scaler."""
        if self.recording is not None:
            self.recording.stepped(optimizer)
        if self.nesting.end(optimizer) and not self.in_scaler:
            self._stepped(optimizer)

    def _stepped(self, optimizer: Optimizer) -> None:
        if self.unit in ("backward", "forward"):
            self.watched.clear()  # what looked like a step was a part of one
            self.times.clear()
            self._drop()
        self.unit = "step"
        if self.leader is None or self.leader() is None or self.counts["since leader"] > 4:
            self.leader = weakref.ref(optimizer)
            self.shapes = tuple(tuple(p.shape) for group in optimizer.param_groups for p in group["params"])
            self.last = None
        self.counts["since leader"] += 1
        if self.leader() is optimizer:
            self.counts["since leader"] = 0
            self._boundary()

    def _begin_in_module(self, module: nn.Module, args: Any) -> None:
        """A model is called: the first begins the watch; without optimizer and backward, each is a step."""
        if torch._C._current_autograd_node() is not None or self.forcing is not None:
            return
        self._settle()
        if self.recording is None and not self.watched:
            self._begin().watch.modules.begin_inside(module)
        elif self.recording is None:
            if self.unit == "forward":
                self._called(module)
        elif self.recording.watch.modules.depth == 0 and not isinstance(module, nn.modules.loss._Loss):
            self.counts["forward"] += 1
            calls = 256 if torch.is_grad_enabled() else 8  # many calls before a backward pass are a loop over time
            if self.unit in ("", "forward") and self.counts["forward"] >= calls and not self.counts["backward"]:
                self.unit = "forward"
                self._boundary()

    def _called(self, module: nn.Module) -> None:
        """Without optimizer and backward, a step is from one call of the model to the next."""
        if self.root is None or module is not self.root():
            return
        active = region_dtype()
        precision = self.called_in or ("" if active else self.low) or WIDE
        self.called_in, self.low = active, ""
        if self.forcing is not None:
            self._forced_boundary()
            return
        self._time(precision)
        self.waiting = 0.0
        if self._seen_enough():
            self._next_measure()

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _boundary(self) -> None:
        """A step is over."""
        precision = self.low or WIDE
        if self.recording is not None:
            self.counts["steps watched"] += 1
            enough = self.counts["steps watched"] >= self.limits.watched or self.unit != "step"
            if enough or len(self.recording.watch.events) > self.limits.events:
                self._finish()
            self.last = None
        elif self.forcing is not None:
            self._forced_boundary()
        else:
            self._time(precision)
            if self._seen_enough():
                self._next_measure()
        self.low = ""
        self.waiting = 0.0

    def _time(self, precision: str) -> None:
        now = time.perf_counter()
        if self.last is not None:
            times = self.times[precision, self.shapes]
            if len(times.seconds) < self.limits.most_timed:
                times.seconds.append(now - self.last)
                times.busy.append(time.process_time() - self.last_busy)
                times.waits.append(self.waiting)
        self.last, self.last_busy = now, time.process_time()

    def _begin(self) -> Recording:
        self.recording = Recording()
        self.recorded_low = ""
        self.counts["steps watched"] = self.counts["forward"] = 0
        self.recording.watch.start()
        return self.recording

    def _complete(self) -> bool:
        """Whether the running watch holds a step of its own already."""
        return self.counts["steps watched"] > 0 or (self.unit == "" and self.counts["forward"] >= 3)

    def _drop(self) -> None:
        if self.recording is not None:
            self.recording.watch.stop()
        self.recording = None

    def _finish(self) -> None:
        """Ends the running watch and keeps the step that stands for it."""
        recording, self.recording = self.recording, None
        if recording is None:
            return
        recording.watch.mark("end", held=recording.all_owned())
        recording.watch.stop()
        steps = cut(recording.watch.events, recording.watch.storages)
        whole = [step for step in steps if any(True for _ in step.ops())]
        if not whole:
            return
        step = typical(whole)
        flags = recording.flags or flags_now()
        problems = [*self.problems, *recording.problems]
        self.watched[step.low or WIDE] = _Watched(step, flags, problems, self.shapes, len(whole))
        self.since = time.perf_counter()
        self.last = None
        if self.unit in ("step", "backward"):
            self._first.remove()
        elif self.unit == "forward":
            roots = [model for ref in recording.watch.modules.roots if (model := ref()) is not None]
            self.root = weakref.ref(max(roots, key=_parameters)) if roots else None
            self.may_train = any(issubclass(type(o), Optimizer) for o in gc.get_objects())

    def _seen_enough(self) -> bool:
        """Whether the script may end: timed, and nothing more is to be expected."""
        low = next((name for name in self.watched if name != WIDE), None)
        waited = time.perf_counter() - self.since if self.since is not None else 0.0
        timed = self.times[low or WIDE, self.shapes].seconds
        settled = len(timed) >= self.limits.timed or (len(timed) >= 3 and waited > self.limits.grace)
        if low is None or (self.unit == "forward" and self.may_train):
            return bool(self.watched) and settled and waited > self.limits.patience
        shapes = self.watched[low].shapes
        control = len(self.times[WIDE, shapes].seconds) >= 3
        return settled and (control or waited > self.limits.grace)

    # ── other precisions ────────────────────────────────────────────────────────────────────────────────────────────

    def _next_measure(self) -> None:
        """The next precision to measure, or the end."""
        if self.forcing is not None:
            self.forcing[1].close()
            self.forcing = None
        while self.measures:
            dtype = self.measures.pop(0)
            name = dtype_name(dtype)
            if len(self.times[name, self.shapes].seconds) >= 3:
                continue
            stack = contextlib.ExitStack()
            kind = "cuda" if torch.cuda.is_available() else "cpu"
            stack.enter_context(forced(dtype, kind, without_regions=set(self.watched) == {WIDE}))
            self.forcing = (name, stack)
            self.forced_times[name] = []
            self.last = None
            return
        self.end()

    def _forced_boundary(self) -> None:
        assert self.forcing is not None
        now = time.perf_counter()
        taken = self.forced_times[self.forcing[0]]
        if self.last is not None:
            taken.append(now - self.last)
        self.last = now
        if len(taken) >= self.limits.timed + 2:
            self._next_measure()

    # ── the report ──────────────────────────────────────────────────────────────────────────────────────────────────

    def report(self, accelerator: str | None = None) -> AuditReport | None:
        """What was seen so far; None where nothing ran."""
        self._first.remove()
        self._finish()
        if not self.watched:
            return None
        low = next((name for name in reversed(self.watched) if name != WIDE), None)
        watched = self.watched[low or WIDE]
        device = _device_of(watched.step)
        report = assemble(
            watched.step,
            traits=probe(device),
            flags=self._flags(watched.flags),
            timing=self._timing(watched),
            accelerator=accelerator,
            recorded=watched.recorded,
            notes=[f"not recorded: {problem}" for problem in watched.problems],
        )
        if not report.mixed:  # without a region the steps ran in what the model is stored in
            rows = (
                replace(row, precision=report.precision) if row.by == "script" else row for row in report.timing.steps
            )
            report = replace(report, timing=replace(report.timing, steps=tuple(rows)))
        report = replace(report, memory=with_counters(report.memory, device))
        return replace(report, findings=advise(report))

    def _timing(self, watched: _Watched) -> Timing:
        rows, share = [], None
        for (precision, shapes), times in self.times.items():
            seconds = times.seconds[2:] if len(times.seconds) > 4 else times.seconds
            if shapes == watched.shapes and seconds:
                busy = quick(times.busy[len(times.busy) - len(seconds) :])
                rows.append(StepTime(precision, quick(seconds), len(seconds), busy=busy))
                if precision == (watched.step.low or WIDE) and self.data_at.file is not None:
                    share = sum(times.waits) / sum(times.seconds)
        for name, taken in self.forced_times.items():
            if len(taken) > 3:
                rows.append(StepTime(name, quick(taken[2:]), len(taken) - 2, "audit"))
        return Timing(tuple(rows), share, self.data_at)

    def _flags(self, flags: Flags) -> Flags:
        nowhere = Location()
        return replace(
            flags,
            anomaly_at=self.flags_at.get("anomaly", nowhere),
            deterministic_at=self.flags_at.get("deterministic", nowhere),
        )

    def marked(self, what: str, by: str | None = None) -> None:
        """The script read the clock, or waited for the device; not where `by`, the file that did, is no user's."""
        recording = self.recording
        if recording is not None and recording.watch.on and (by is None or is_user_file(by)):
            recording.watch.mark(what, location=user_site())

    def loading(self, begins: bool, loader: Any = None) -> None:
        """A DataLoader is asked for a batch, or handed one out; its first batch waits for workers to start."""
        now = time.perf_counter()
        if begins:
            self._asked = now if getattr(loader, "_num_yielded", 1) else None
            if self.data_at.file is None:
                self.data_at = user_site()
        elif self._asked is not None:
            self.waiting += now - self._asked

    _asked: float | None = None


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _device_of(step: Step) -> torch.device:
    return torch.device(main_device(step))
