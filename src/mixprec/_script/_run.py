"""One run of one script: started with our startup file first, limited in time, and cleaned up whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from mixprec._script import _processes
from mixprec._script._command import Command
from mixprec._script._outcome import Outcome
from mixprec._script._output import Capture

__all__ = ["STARTUP", "VARIABLE", "run_script"]

STARTUP = Path(__file__).with_name("startup")
VARIABLE = "MIXPREC_SCRIPT"
POLL = 0.05


def run_script(
    command: Command,
    *,
    entry: str,
    options: Mapping[str, Any],
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    stdin: str | bytes | IO[Any] | None = None,
    capture: bool = True,
    on_output: Callable[[str], None] | None = None,
    until: Callable[[], bool] | None = None,
    folder: str | Path | None = None,
    replace: Mapping[str, str] | None = None,
    python: str | None = None,
) -> Outcome:
    """Runs `command` with `entry` ("package.module:function") called on `options` in it once torch is imported.

    cwd, env: working folder and environment; by default the running process's own. `env` replaces, it does not add.
    timeout: seconds, then SIGTERM and 3 s later SIGKILL. stdin: None for /dev/null, text or bytes, or an open file
    (`sys.stdin` to pass it on). capture: False lets the script write to this process's stdout and stderr.
    on_output: called with each piece of captured output, in another thread. until: asked about every 50 ms, ends the
    script when it says True. folder: where the children's files (`child.record_file`) are; kept if given, otherwise
    temporary. replace: path to text, for files of which this run has another text, in every process (the script itself,
    modules). python: the interpreter.

    At the time limit, at Ctrl-C, at SIGTERM (in the main thread) and at the script's own end, everything that it
    started is ended as well; where this process is killed, a warden ends it within some seconds.

    Raises: InvalidValueError where the script does not exist; what `until` raises.

    **Cost**: a process; nothing in the script until it imports torch.
    """
    where = Path(cwd) if cwd is not None else None
    command.check(where)
    own = folder is None
    place = Path(tempfile.mkdtemp(prefix="mixprec-")) if folder is None else Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    (place / "start.json").write_text(json.dumps({"entry": entry, "options": dict(options)}), encoding="utf-8")
    texts = {os.path.realpath(Path(where or ".") / path): text for path, text in (replace or {}).items()}
    (place / "replace.json").unlink(missing_ok=True)
    if texts:
        (place / "replace.json").write_text(json.dumps(texts), encoding="utf-8")
    try:
        with _as_interrupt():
            return _run(command.line(python), place, where, env, timeout, stdin, capture, on_output, until)
    finally:
        if own:
            shutil.rmtree(place, ignore_errors=True)


def _run(
    line: list[str],
    place: Path,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    stdin: str | bytes | IO[Any] | None,
    capture: bool,
    on_output: Callable[[str], None] | None,
    until: Callable[[], bool] | None,
) -> Outcome:
    started = time.monotonic()
    mark = f"{VARIABLE}={place}"
    with _processes.Warden(mark), _input(stdin) as source:
        process = subprocess.Popen(
            line,
            cwd=cwd,
            env=_environment(os.environ if env is None else env, place, capture),
            stdin=source,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            start_new_session=True,
        )
        pipe = Capture(process.stdout.fileno(), on_output) if process.stdout is not None else None
        try:
            why = _watch(process, started, timeout, until)
        finally:
            _processes.end(process, mark)
            text = pipe.text() if pipe is not None else ""
            if process.stdout is not None:
                process.stdout.close()
    errors = tuple(path.read_text(encoding="utf-8", errors="replace") for path in sorted(place.glob("error-*.txt")))
    seconds = time.monotonic() - started
    return Outcome(process.returncode, seconds, text, why == "timeout", why == "stopped", errors)


def _watch(
    process: subprocess.Popen[bytes], started: float, timeout: float | None, until: Callable[[], bool] | None
) -> str:
    """Waits for what ends the run: "exit", "timeout" or "stopped"."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL)
            return "exit"
        if timeout is not None and time.monotonic() - started >= timeout:
            return "timeout"
        if until is not None and until():
            return "stopped"


def _environment(env: Mapping[str, str], place: Path, capture: bool) -> dict[str, str]:
    """`env` with the startup folder first on PYTHONPATH. Unbuffered where captured: a killed script loses nothing."""
    path = [str(STARTUP), *filter(None, [env.get("PYTHONPATH")])]
    added = {VARIABLE: str(place), "PYTHONPATH": os.pathsep.join(path)}
    if capture:
        added["PYTHONUNBUFFERED"] = "1"
    return {**env, **added}


@contextlib.contextmanager
def _input(stdin: str | bytes | IO[Any] | None) -> Iterator[int | IO[Any]]:
    """Something that Popen accepts; text goes through a file, so that it is never waited for."""
    if stdin is None:
        yield subprocess.DEVNULL
    elif isinstance(stdin, (str, bytes)):
        with tempfile.TemporaryFile() as file:
            file.write(stdin.encode() if isinstance(stdin, str) else stdin)
            file.seek(0)
            yield file
    else:
        yield stdin


@contextlib.contextmanager
def _as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP, unless handled already, end this process through an exception, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    mine = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)
