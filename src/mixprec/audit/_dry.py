"""A dry run: the same step on tensors that have shapes and dtypes and no values, so no memory and no device is needed.

Real weights take part as fakes and are left as they were. What depends on values cannot be known: a value that the step
reads is 0, so a scaler finds no infinity and a test of the loss is false.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mixprec._policy import Policy
from mixprec._taps import listen
from mixprec.audit._assemble import assemble, policy_for
from mixprec.audit._flags import flags_now
from mixprec.audit._log import Mark
from mixprec.audit._record import Recording
from mixprec.audit._report import AuditReport
from mixprec.audit._steps import cut_at
from mixprec.audit._watch import Watch
from mixprec.audit.advice import advise

__all__ = ["dry_run"]


def dry_run(
    build: Callable[[], Callable[[], Any]],
    *,
    device_type: str = "cuda",
    dtype: torch.dtype | None = torch.float16,
    policy: Policy | None = None,
    accelerator: str | None = None,
) -> AuditReport:
    """Audits a step that is never computed.

    `build` is called on fake tensors and returns the step, a function without arguments: model, optimizer and data are
    made in it and cost no memory. The step runs twice, the second time under watch. Where it enters no autocast region
    of its own, all of it runs in one of `dtype` (None: in none). Ops are cast by `policy`, by default by PyTorch's own
    list for `device_type`, which need not be there: everything runs on fake CPU tensors, whose kernels do not matter.

    Raises: whatever the step raises; MisuseError where nothing ran.

    **Cost**: host only, about 0.1 ms per op; no tensor memory.

    ```python
    def build():
        model = GPT2()
        optimizer = torch.optim.AdamW(model.parameters())
        ids = torch.randint(0, 50257, (8, 1024))

        def step():
            loss = model(ids).float().logsumexp(-1).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    report = dry_run(build, device_type="cuda", dtype=torch.bfloat16)
    ```
    """
    rules = policy or policy_for(device_type)
    region = _Region(rules, dtype)
    recording = _Recording(region)
    watch = recording.watch
    with FakeTensorMode(allow_non_fake_inputs=True), _Values(watch), listen(recording):
        step = build()
        with region.open():
            step()
        with region.open():
            watch.start()
            try:
                step()
            finally:
                watch.stop()
    if not any(isinstance(e, Mark) and e.what == "step" for e in watch.events):
        watch.mark("end", held=recording.all_owned())
    recorded = cut_at(watch.events, watch.storages, [len(watch.events) - 1])[-1]
    report = assemble(
        recorded,
        traits=None,
        flags=recording.flags or flags_now(),
        policy=rules,
        accelerator=accelerator,
        device_type=device_type,
        notes=["dry run on fake tensors: nothing was computed and nothing timed"],
    )
    return replace(report, findings=advise(report))


class _Region:
    """One region around everything, unless the step's own regions are to decide (`dtype` None).

    Its casts of weights are dropped before backward, as they are where a region ends with forward.
    """

    def __init__(self, policy: Policy, dtype: torch.dtype | None) -> None:
        self.policy = policy
        self.dtype = dtype
        self.forget: Callable[[], None] = lambda: None

    def open(self) -> contextlib.AbstractContextManager[Any]:
        """The region, to be entered once."""
        if self.dtype is None:
            return contextlib.nullcontext()
        from mixprec._autocast import CastCache, autocast  # here, because a dry run without a region does without it

        cache = CastCache()
        self.forget = cache.clear
        return autocast("cpu", self.dtype, policy=self.policy, cache_enabled=cache)


class _Recording(Recording):
    def __init__(self, region: _Region) -> None:
        super().__init__()
        self.region = region

    def before_backward(self, outputs: tuple[Tensor, ...]) -> None:
        super().before_backward(outputs)
        self.region.forget()


class _Values(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch annotates none of it
    """Answers for the values that fake tensors do not have: 1 in an optimizer, which reads its step, elsewhere 0."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            tensor: Tensor = args[0]
            kind = bool if tensor.dtype is torch.bool else float if tensor.is_floating_point() else int
            return kind(self.watch.optimizing)
        if func is torch.ops.aten.equal.default:
            return True
        return func(*args, **(kwargs or {}))
