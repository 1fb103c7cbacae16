"""No script hangs an arm, leaves processes behind, or loses what it did before it misbehaved."""

from __future__ import annotations

import pytest

from mixprec._script import _processes

pytestmark = pytest.mark.slow

ENDINGS = {
    "endless": ("for _ in range(3): step()\nwhile True: pass", "timed_out", 3),
    "endless steps": ("while True: step()", "stopped", 5),
    "catches everything": (
        "while True:\n    try:\n        step()\n    except BaseException:\n        pass\n    finally:\n        print()",
        "stopped",
        5,
    ),
    "sys.exit": ("for _ in range(3): step()\nsys.exit(4)", "finished", 3),
    "os._exit": ("for _ in range(3): step()\nos._exit(4)", "finished", 3),
    "raises at step 3": ("for i in range(9):\n    step()\n    assert i < 2, 'third'", "crashed", 3),
    "missing file": ("open('absent.csv')", "crashed", 0),
    "flood": ("for _ in range(3):\n    step()\n    print('x' * 3_000_000)", "finished", 3),
    "own arguments, folder, input, hook, guard": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int)\nn = p.parse_args().n\n"
        "sys.stdin.read()\nos.chdir('/')\nsys.excepthook = lambda *a: None\n"
        "if __name__ == '__main__':\n    for _ in range(n): step()\n    sys.stdout.close()\n    sys.stderr.close()",
        "finished",
        3,
    ),
    "daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(999,), daemon=True).start()\n"
        "for _ in range(3): step()",
        "finished",
        3,
    ),
    "thread that stays": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(999,)).start()\nfor _ in range(3): step()",
        "timed_out",
        3,
    ),
    "forks": ("for _ in range(3): step()\nif os.fork() == 0: os._exit(0)\nos.wait()", "finished", 3),
    "kills itself": ("for _ in range(3): step()\nos.kill(os.getpid(), 9)", "killed", 3),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_is_told_with_the_steps_before_it(arm, name, tmp_path):
    """How it ended and all steps until then are in the arm; nothing of the script is left."""
    source, ended, steps = ENDINGS[name]

    seen = arm(source, "--n", "3", steps=5, timeout=30 if ended == "timed_out" else 90)

    assert (seen.ended, len(seen.steps)) == (ended, steps), seen.output_tail
    assert seen.uncontrolled == ()
    assert not any(name.startswith("recorder_failed") for name in seen.facts)
    assert list(_processes.marked(f"MIXPREC_SCRIPT={tmp_path}")) == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_steps_in_a_child_of_every_start_method_are_heard(arm, method):
    """Training in a multiprocessing child is recorded as in the main process."""
    seen = arm(
        f"""
        import multiprocessing

        def train():
            for _ in range(3):
                step()

        if __name__ == "__main__":
            child = multiprocessing.get_context("{method}").Process(target=train)
            child.start()
            child.join()
            sys.exit(child.exitcode)
        """
    )

    assert (seen.ended, seen.returncode, len(seen.steps)) == ("finished", 0, 3), seen.output_tail


def test_data_workers_are_not_listened_to(arm):
    """Modules that run in DataLoader workers leave no record, and the workers end with the script."""
    seen = arm(
        """
        class Data(torch.utils.data.Dataset):
            norm = nn.LayerNorm(8)
            def __len__(self):
                return 32
            def __getitem__(self, i):
                return self.norm(torch.ones(8)).detach()

        if __name__ == "__main__":
            for batch in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2):
                step()
        """
    )

    assert len(seen.steps) == 4, seen.output_tail
    assert not any(module.kind == "LayerNorm" for module in seen.modules)


def test_an_exception_in_a_spawned_rank_is_the_ranks(arm):
    """`torch.multiprocessing.spawn` wraps what a rank raised; the arm tells the rank's own exception and line."""
    seen = arm(
        """
        def rank(index):
            step()
            raise KeyError("in the rank")

        if __name__ == "__main__":
            import torch.multiprocessing as mp
            mp.spawn(rank, nprocs=1)
        """
    )

    assert seen.crash is not None, seen.output_tail
    assert (seen.crash.kind, seen.ended) == ("KeyError", "crashed")
    assert seen.crash.frames[-1].file.endswith("train.py")
