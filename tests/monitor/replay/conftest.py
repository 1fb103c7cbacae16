"""Scripts that are watched and replayed in this process: what `mixprec run` and `mixprec replay` do in processes."""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import warnings
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from mixprec._script import Command, Outcome, child
from mixprec.monitor import _silence
from mixprec.monitor._attach import attach
from mixprec.monitor.incident import IncidentStore, IncidentWatch, load_incidents
from mixprec.monitor.replay import _child, _script, replay_script


class Ended(BaseException):
    """The script has been stopped."""


class OneAfterTheOther:
    """Does at once what a pool of threads would do later: two scripts in one process must not run together."""

    def __init__(self, threads: int) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future


def _run(script: Path) -> None:
    """The script as `__main__`, from the random state of a fresh process, its output thrown away."""
    torch.manual_seed(torch.default_generator.initial_seed())
    before, sys.argv = sys.argv, [str(script)]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Ended):
            warnings.simplefilter("ignore")
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


class InProcess:
    """`record(script)` leaves incidents; `replay(incident, script)` is `replay_script` without a process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._runs = folder, 0
        self.monkeypatch = monkeypatch

    def record(self, script: Path, most: int | None = None, **options):
        """The incidents of the script, which is stopped when it has left `most`."""
        place = self._folder / "incidents"
        count = []

        def saved(path, moment) -> None:
            count.append(path)
            if len(count) == most:
                raise Ended

        with (
            IncidentWatch(IncidentStore(place), saved=saved, hear_checks=True, **options),
            contextlib.suppress(Exception),
        ):
            _run(script)
        return load_incidents(place)

    def watch(self, script: Path):
        """The steps that a monitor keeps of the script."""
        finish = attach({"folder": str(self._folder), "level": "deep", "incidents": True})
        try:
            _run(script)
        finally:
            finish()
        return load_incidents(self._folder)

    def replay(self, incident, script: Path, **options):
        """What `replay_script` finds."""
        with self.instead_of_processes():
            return replay_script(incident, command=Command((str(script),)), **options)

    @contextlib.contextmanager
    def instead_of_processes(self):
        """Inside, a script is replayed in this process."""
        with self.monkeypatch.context() as patch:
            patch.setattr(_silence, "_silent", False)
            patch.setattr(_script, "ThreadPoolExecutor", OneAfterTheOther)
            patch.setattr(_script, "run_script", lambda command, **how: self._again(patch, command.script, **how))
            yield

    def _again(self, patch, script: Path, *, options, folder, **_):
        self._runs += 1
        folder = Path(folder)
        patch.setattr(child, "folder", lambda: folder)
        patch.setattr(child, "record_file", lambda suffix: folder / f"{self._runs}{suffix}")

        def end_now(code: int = 0) -> None:
            raise Ended

        patch.setattr(child, "end_now", end_now)
        leave = _child.enter(json.loads(json.dumps(options)))
        error = ""
        try:
            _run(script)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        finally:
            with contextlib.suppress(Ended):
                leave()
        return Outcome(1 if error else 0, 0.0, error)


@pytest.fixture
def in_process(tmp_path, monkeypatch):
    """See `InProcess`."""
    before = torch.random.get_rng_state()
    yield InProcess(tmp_path, monkeypatch)
    torch.random.set_rng_state(before)
