"""Whatever a script does, running it ends, its output is bounded and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mixprec._script import Command, _processes, run_script
from mixprec.errors import InvalidValueError


def left_over(tmp_path):
    """Processes that still carry the mark of this test's run."""
    return list(_processes.marked(f"MIXPREC_SCRIPT={tmp_path / 'records'}"))


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)",
        "import os, time\nos.fork()\nos.setsid() if os.fork() == 0 else None\nwhile True: time.sleep(1)",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'], start_new_session=True)",
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(1000)).start()",
    ],
    ids=["busy", "catches everything", "ignores SIGTERM", "forks and detaches", "new session", "thread"],
)
def test_an_endless_script_ends_at_the_limit(run, tmp_path, source, monkeypatch):
    """It is ended with all that it started, also what has a session of its own or ignores SIGTERM."""
    monkeypatch.setattr(_processes.end, "__defaults__", (0.3,))

    outcome, _ = run(source, timeout=1.0)

    assert outcome.timed_out
    assert outcome.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    assert outcome.seconds < 6
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import sys; sys.exit('text')", 1),
        ("import os; os._exit(9)", 9),
        ("raise RuntimeError", 1),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("import os; os.chdir('/'); raise SystemExit(4)", 4),
    ],
)
def test_the_exit_code_is_the_scripts_own(run, source, code):
    """However it ends, its exit code (negative: its signal) is what the outcome says."""
    outcome, _ = run(source)

    assert (outcome.returncode, outcome.timed_out) == (code, False)


def test_what_outlives_the_script_is_ended(run, tmp_path):
    """A daemon that the script leaves behind is gone when the run returns, and holds nothing up."""
    outcome, _ = run(
        """
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
        print("done")
        """
    )

    assert (outcome.returncode, outcome.output) == (0, "done\n")
    assert outcome.seconds < 8
    assert left_over(tmp_path) == []


def test_a_flood_is_read_and_not_kept(run):
    """60 MB of output pass without blocking; head and tail are kept, the gap is named, under 1 MiB in all."""
    outcome, _ = run(
        """
        import sys
        print("first line")
        for _ in range(60):
            sys.stdout.write("x" * 1_000_000)
        print("\\nlast line")
        """
    )

    assert outcome.returncode == 0
    assert outcome.output.startswith("first line\n")
    assert outcome.output.endswith("last line\n")
    assert "bytes left out" in outcome.output
    assert len(outcome.output) < 1 << 20


def test_small_output_is_kept_whole_and_in_order(run):
    """stdout and stderr together, in the order written, and every piece is handed on as well."""
    pieces = []

    outcome, _ = run("import sys\nfor i in range(3): print(i); print(-i, file=sys.stderr)", on_output=pieces.append)

    assert outcome.output == "0\n0\n1\n-1\n2\n-2\n"
    assert "".join(pieces) == outcome.output


@pytest.mark.parametrize(("stdin", "read"), [(None, ""), ("a\nb", "a\nb"), (b"c", "c")])
def test_reading_stdin_never_waits(run, stdin, read):
    """stdin is empty unless given."""
    outcome, _ = run("import sys; print(repr(sys.stdin.read()))", stdin=stdin)

    assert outcome.output == f"{read!r}\n"


def test_until_ends_a_run(run):
    """A run ends when `until` says so, and says that it was stopped."""
    began = time.monotonic()

    outcome, _ = run("import time; time.sleep(1000)", until=lambda: time.monotonic() - began > 0.3)

    assert (outcome.stopped, outcome.timed_out) == (True, False)


def test_end_now_passes_every_handler(run):
    """`child.end_now` leaves through neither `except` nor `finally`, flushes, and runs the exit callbacks."""
    outcome, said = run(
        """
        import torch
        from mixprec._script import child
        while True:
            try:
                print("before", end="")
                child.end_now(0)
            except BaseException:
                print("caught")
            finally:
                print("finally")
        """
    )

    assert (outcome.returncode, outcome.output) == (0, "before")
    assert [lines[-1] for lines in said.values()] == ["exit"]


def _heed_interrupts():
    """Tests that run in the background of a shell inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(tmp_path, number):
    """Ctrl-C and SIGTERM to the parent end the script as well and remove the temporary folder."""
    (tmp_path / "script.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)")
    (tmp_path / "parent.py").write_text(
        textwrap.dedent(
            """
            from mixprec._script import Command, run_script
            run_script(Command(("script.py",)), entry="none:none", options={}, capture=False)
            """
        )
    )
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "parent.py"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=_heed_interrupts,
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"up\n"
            parent.send_signal(number)
            assert parent.wait(20) != 0
        finally:
            parent.kill()

    assert list(_processes.marked(f"MIXPREC_SCRIPT={tmp_path}")) == []
    assert list(Path(tmp_path).glob("mixprec-*")) == []


CHILDREN = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
print("up", flush=True)
time.sleep(1000)
"""


def test_a_killed_parent_leaves_nothing(tmp_path):
    """SIGKILL to the parent ends the script, and what the script started in a session of its own, as torchrun does."""
    (tmp_path / "script.py").write_text(CHILDREN)
    (tmp_path / "parent.py").write_text(
        "from mixprec._script import Command, run_script\n"
        "run_script(Command(('script.py',)), entry='none:none', options={}, capture=False)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    mark = f"MIXPREC_SCRIPT={tmp_path}"
    with subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        assert len(list(_processes.marked(mark))) == 2
        parent.kill()
    deadline = time.monotonic() + 20
    while list(_processes.marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert list(_processes.marked(mark)) == []


def test_a_missing_script_is_refused_with_its_name(tmp_path):
    """The error names the script; one that exists beside it is accepted."""
    (tmp_path / "there.py").write_text("")

    with pytest.raises(InvalidValueError, match=r"script is 'absent.py'; accepted is an existing Python file"):
        run_script(Command(("absent.py",)), entry="none:none", options={}, cwd=tmp_path)
    assert run_script(Command(("there.py",)), entry="none:none", options={}, cwd=tmp_path).returncode == 0
