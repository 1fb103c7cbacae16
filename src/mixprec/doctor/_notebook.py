"""The same examination for a training step that exists only in this process, as in a notebook.

Arms run here one after the other, from the same weights, optimizer state, loss scale and random state; whatever was
put in torch's place for an arm is taken out after it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizer_hooks
from torch.utils.data import dataloader

from mixprec._script import child
from mixprec._taps import listen
from mixprec.doctor import interventions
from mixprec.doctor._arm import Arm, ArmPlan, Examination, read_arm
from mixprec.doctor._conclude import conclude, next_plan
from mixprec.doctor._diagnosis import Diagnosis
from mixprec.doctor._recorder._island import IslandSearch, searched
from mixprec.doctor._recorder._listener import Recorder
from mixprec.doctor._recorder._location import Locator, traced
from mixprec.doctor._recorder._scene import Scene
from mixprec.doctor._recorder._start import SEED, seed_everything
from mixprec.doctor._recorder._writer import Writer
from mixprec.doctor._trials import modules_tried
from mixprec.doctor.interventions._change import subclasses
from mixprec.errors import InvalidValueError

__all__ = ["examine"]


class _Enough(BaseException):
    """Ends an arm through whatever handlers the step has."""


def examine(
    step_fn: Callable[[], Any],
    state: Sequence[Any],
    *,
    steps: int = 50,
    time_limit: float = 120.0,
    fast: bool = False,
) -> Diagnosis:
    """Examines `step_fn()`, which makes one training step with what is in `state`.

    state: the models, optimizers, schedulers and scalers that a step changes; all have `state_dict` and
    `load_state_dict`, and are put back before every arm and at the end. What else a step changes (an iterator, a
    counter) goes on from arm to arm, so a step that draws its batch from the random state is examined best.
    steps: steps per arm. time_limit: seconds for everything. fast: fewer arms.

    Raises: InvalidValueError where `state` holds something that cannot be saved.

    **Cost**: 2 to 8 times `steps` steps, and a copy of everything in `state`.
    """
    saved = _Saved(state)
    began = time.monotonic()
    known = Examination((getattr(step_fn, "__name__", "step_fn"),), wanted_steps=steps, seconds_left=time_limit)
    interrupted = False
    while (plan := next_plan(known, fast)) is not None and len(known.arms) < 16 and not interrupted:
        arm = _run(step_fn, saved, plan, steps, time_limit - (time.monotonic() - began))
        left = time_limit - (time.monotonic() - began)
        known = dataclasses.replace(known.with_arm(arm), seconds_left=left)
        interrupted = arm.ended == "interrupted" or left <= 0
    diagnosis = conclude(known)
    if not fast and not interrupted:
        diagnosis = modules_tried(diagnosis, _Bench(step_fn, saved, steps, began + time_limit))
    return dataclasses.replace(
        diagnosis, interrupted=diagnosis.interrupted or interrupted, seconds=time.monotonic() - began
    )


class _Bench:
    """Runs further arms in what is left of the time; there is no text of a script that could be another one."""

    def __init__(self, step_fn: Callable[[], Any], saved: _Saved, steps: int, deadline: float) -> None:
        self._step_fn = step_fn
        self._saved = saved
        self._steps = steps
        self._deadline = deadline

    def run(self, plan: ArmPlan, replace: Mapping[str, str]) -> Arm:
        """One arm."""
        return _run(self._step_fn, self._saved, plan, self._steps, self.share())

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds are left."""
        return self.share() >= seconds

    def share(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()


def _run(step_fn: Callable[[], Any], saved: _Saved, plan: ArmPlan, steps: int, left: float) -> Arm:
    """One arm, in this process."""
    began = time.monotonic()
    changes = {change.name: change.value for change in plan.interventions}
    with (
        tempfile.TemporaryDirectory(prefix="mixprec-arm-") as folder,
        _in(Path(folder)),
        _undone(saved.modules()),
        saved.restored(),
    ):
        seed_everything(SEED)
        interventions.apply(changes)
        saved.apply(changes)
        writer = Writer()
        scene = Scene(writer)
        recorder = Recorder(scene, 10 * steps, _enough)
        with listen(recorder), _searching(scene, plan):
            saved.introduce(recorder)
            iterations = traced({"trace": plan.trace})
            if iterations:
                scene.locator = Locator(scene, iterations, _enough)
            ended = _steps(step_fn, recorder, min(plan.steps or steps, steps), began + left)
            recorder.close()
        writer.close()
        lines = [
            line for path in Path(folder).glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()
        ]
        arm = read_arm(Arm(plan.name, plan.interventions), lines)
    return dataclasses.replace(arm, ended=ended, seconds=time.monotonic() - began)


def _searching(scene: Scene, plan: ArmPlan) -> contextlib.AbstractContextManager[Any]:
    """Listens for the step in which the plan wants modules searched."""
    iterations = searched({"trace": plan.trace})
    if not iterations or plan.trace is None:
        return contextlib.nullcontext()
    return listen(IslandSearch(scene, iterations, float(plan.trace["seconds"]), _enough))


def _steps(step_fn: Callable[[], Any], recorder: Recorder, steps: int, deadline: float) -> str:
    """Runs the steps; how that ended."""
    try:
        for _ in range(steps):
            step_fn()
            if time.monotonic() > deadline:
                return "timed_out"
    except _Enough:
        return "stopped"
    except KeyboardInterrupt:
        return "interrupted"
    except Exception as error:
        recorder.crashed(error)
        return "crashed"
    return "finished"


def _enough() -> None:
    raise _Enough


class _Saved:
    """Copies of everything that a step changes."""

    def __init__(self, state: Sequence[Any]) -> None:
        for part in state:
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise InvalidValueError("state", type(part).__name__, "objects with state_dict and load_state_dict")
        self._parts = tuple(state)
        self._copies = [copy.deepcopy(part.state_dict()) for part in self._parts]
        self._random = torch.get_rng_state()

    def modules(self) -> list[torch.nn.Module]:
        """Every module of the models in it."""
        models = [part for part in self._parts if isinstance(part, torch.nn.Module)]
        return [module for model in models for module in model.modules()]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Puts everything as it was when it was saved, before and after."""
        try:
            self._restore()
            yield
        finally:
            self._restore()
            torch.set_rng_state(self._random)

    def _restore(self) -> None:
        for part, kept in zip(self._parts, self._copies, strict=True):
            if kept or not isinstance(part, torch.amp.GradScaler):
                part.load_state_dict(copy.deepcopy(kept))
            if isinstance(part, torch.amp.GradScaler):
                part._enabled = bool(kept)
                part._scale = part._growth_tracker = None  # the next use makes them from what was loaded
                part._per_optimizer_states.clear()
            for group in getattr(part, "param_groups", ()):
                for parameter in group["params"]:
                    parameter.grad = None

    def introduce(self, recorder: Recorder) -> None:
        """The recorder hears of what was built before it listened."""
        for part in self._parts:
            if isinstance(part, torch.amp.GradScaler):
                recorder.scaler_created(part)
            elif isinstance(part, torch.optim.Optimizer):
                recorder.optimizer_created(part)

    def apply(self, changes: dict[str, Any]) -> None:
        """Scalers that exist already take part in what an intervention does to new ones."""
        for part in self._parts:
            if isinstance(part, torch.amp.GradScaler):
                if "precision" in changes:
                    part._enabled = changes["precision"] == "fp16"
                if "loss_scale" in changes or "init_scale" in changes:
                    part._init_scale = float(changes.get("loss_scale") or changes["init_scale"])


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    """Records go to `folder`."""
    before, child._folder = child._folder, folder
    try:
        yield
    finally:
        child._folder = before


@contextlib.contextmanager
def _undone(modules: Sequence[torch.nn.Module] = ()) -> Iterator[None]:
    """Whatever interventions put in place of torch's own, or of a module's forward, is taken out at the end."""
    forwards = [(module, vars(module).get("forward")) for module in modules]
    owners: list[Any] = [torch, torch.Tensor, torch.nn.Module, torch.autocast, dataloader._BaseDataLoaderIter]
    owners += [*subclasses(torch.amp.GradScaler), *subclasses(torch.optim.Optimizer)]
    before = [(owner, dict(vars(owner))) for owner in owners]
    hooks: list[Any] = [optimizer_hooks._global_optimizer_pre_hooks, optimizer_hooks._global_optimizer_post_hooks]
    module_hooks: Any = torch.nn.modules.module
    hooks.append(module_hooks._global_forward_pre_hooks)
    kept = [dict(table) for table in hooks]
    modes = torch._C._len_torch_function_stack()
    try:
        yield
    finally:
        for module, forward in forwards:
            if vars(module).get("forward") is not forward:
                vars(module).pop("forward") if forward is None else vars(module).update(forward=forward)
        while torch._C._len_torch_function_stack() > modes:
            torch._C._pop_torch_function_stack()
        for owner, names in before:
            for name, value in names.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
        for table, old in zip(hooks, kept, strict=True):
            for key in [key for key in table if key not in old]:
                del table[key]
