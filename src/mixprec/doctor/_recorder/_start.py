"""The entry in the script's process: seeds, interventions, taps, in this order, before the script's next statement."""

from __future__ import annotations

import os
import platform
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from mixprec._script import child
from mixprec._taps import listen
from mixprec._trace import is_user_file, user_site
from mixprec.doctor import interventions
from mixprec.doctor._arm import WarningRecord
from mixprec.doctor._recorder._crash import watch_exceptions
from mixprec.doctor._recorder._island import IslandSearch, searched
from mixprec.doctor._recorder._listener import Recorder
from mixprec.doctor._recorder._location import Locator, traced
from mixprec.doctor._recorder._scene import Scene
from mixprec.doctor._recorder._watches import (
    watch_compile,
    watch_empty,
    watch_intervals,
    watch_leaves,
    watch_reductions,
    watch_step_hooks,
)
from mixprec.doctor._recorder._writer import Writer
from mixprec.records import Location

__all__ = ["multiprocessing_child", "seed_everything", "start"]

SEED = 20_240_229


def start(options: dict[str, Any]) -> Callable[[], None]:
    """`options`: "interventions" (name to value), "steps" (attempts per optimizer), "patience" (seconds; a rank among
    others has none, since all of them end at the same step), "trace" (see `_location`).
    """
    seed_everything()
    interventions.apply(options.get("interventions", {}))
    writer = Writer()
    scene = Scene(writer)
    iterations = traced(options)
    search = searched(options)
    limit = sys.maxsize if iterations or search else int(options.get("steps") or sys.maxsize)
    patience = 0.0 if multiprocessing_child() else float(options.get("patience", 0.0))
    recorder = Recorder(scene, limit, lambda: _end(writer), patience)
    watch_exceptions(recorder.crashed)
    _watch_warnings(scene)
    _end_in_order()
    listen(recorder)
    watch_compile(writer)
    watch_leaves()
    watch_step_hooks()
    watch_intervals(recorder.events.tell)
    watch_empty(recorder.events.tell)
    watch_reductions(recorder.events.tell)
    _say_facts(writer)
    if iterations:
        scene.locator = Locator(scene, iterations, lambda: _end(writer))
    if search:
        listen(IslandSearch(scene, search, float(options["trace"]["seconds"]), lambda: _end(writer)))
    return recorder.close


def seed_everything(seed: int = SEED) -> None:
    """The same start for every arm; a script that seeds itself does so afterwards."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def _end(writer: Writer) -> None:
    """Enough was seen: this process ends here, its peers a moment later at the same place."""
    writer.fact("ended", "stopped")
    if child.rank() is not None:
        threading.Event().wait(0.5)  # what was sent to the other ranks has arrived
    child.end_now(0)


def _end_in_order() -> None:
    """SIGTERM, which the time limit sends, still lets the records be completed."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: child.end_now(128 + number))


def _watch_warnings(scene: Scene) -> None:
    """Every warning that is shown is recorded and then shown."""
    show = warnings.showwarning
    count = 0

    def told(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        nonlocal count
        count += 1
        if count <= 200 and not child.in_worker():
            site = Location(file=filename, line=lineno) if is_user_file(filename) else user_site()
            scene.writer.record(
                WarningRecord(category.__name__, str(message)[:1000], site, scene.iteration, scene.writer.rank)
            )
        show(message, category, filename, lineno, file, line)

    warnings.showwarning = told


def _say_facts(writer: Writer) -> None:
    """What machine and what torch this is."""
    if multiprocessing_child():
        return
    writer.fact("torch", str(torch.__version__))
    writer.fact("python", platform.python_version())
    writer.fact("cuda", torch.cuda.is_available())
    writer.fact("threads", torch.get_num_threads())
    writer.fact("cpu_capability", torch.backends.cpu.get_cpu_capability())
    writer.fact("cpu_flags", _cpu_flags())


def multiprocessing_child() -> bool:
    """Whether another Python process started this one through multiprocessing."""
    import multiprocessing

    return multiprocessing.parent_process() is not None or "RANK" in os.environ


def _cpu_flags() -> list[str]:
    """Those of the CPU's flags that decide whether it computes in 16 bits."""
    wanted = {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_tile"}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return sorted(wanted & set(next((line for line in file if line.startswith("flags")), "").split()))
    except OSError:
        return []
