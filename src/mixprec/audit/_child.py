"""Inside the script: taps that feed a plan, and the report in a file when the plan, the script or the time ends."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from mixprec._script import child
from mixprec._taps import listen
from mixprec._taps._calls import Taps
from mixprec._trace import user_site
from mixprec.audit._limits import Limits
from mixprec.audit._plan import Plan

__all__ = ["SUFFIX", "entry"]

SUFFIX = ".audit"


def entry(options: dict[str, Any]) -> Callable[[], None]:
    """Starts to listen; what it returns is called at exit. Options: `seconds`, `measure`, `accelerator`."""
    written = threading.Lock()

    def write() -> None:
        if child.in_worker() or not written.acquire(blocking=False):
            return
        report = plan.report(options.get("accelerator"))
        if report is None:
            return
        path = child.record_file(SUFFIX)
        part = path.with_suffix(f".part{os.getpid()}")
        part.write_bytes(pickle.dumps(report))
        part.replace(path)

    def end() -> None:
        write()
        child.end_now(0)

    plan = Plan(end, Limits(), measure=bool(options.get("measure")))
    listen(plan)
    _tap_switches(plan)
    clock = threading.Timer(float(options.get("seconds", 120.0)), end)
    clock.daemon = True
    clock.start()
    return write


def _tap_switches(plan: Plan) -> None:
    """Where anomaly detection and deterministic algorithms come on, how long a DataLoader is waited for, and where the
    script reads the clock.
    """
    taps = Taps()

    def on(what: str) -> Callable[..., None]:
        def told(*args: Any, **kwargs: Any) -> None:
            plan.flags_at.setdefault(what, user_site())

        return told

    taps.call(torch.autograd.set_detect_anomaly, "__init__", after=on("anomaly"))
    taps.call(torch.autograd.detect_anomaly, "__enter__", after=on("anomaly"))
    taps.call(torch, "use_deterministic_algorithms", after=on("deterministic"))
    base = torch.utils.data.dataloader._BaseDataLoaderIter
    for clock in ("time", "perf_counter", "monotonic"):
        taps.call(time, clock, after=lambda *_: plan.marked("clock", sys._getframe(2).f_code.co_filename))
    for owner, name in (
        (torch.cuda, "synchronize"),
        (torch.cuda.Event, "synchronize"),
        (torch.accelerator, "synchronize"),
    ):
        taps.call(owner, name, after=lambda *_, **__: plan.marked("synchronize"))
    taps.family(base, "__next__", lambda loader: plan.loading(True, loader), lambda *_: plan.loading(False))
