"""An unmodified script is watched in a process of its own and ended when enough was seen."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from mixprec._script import Command
from mixprec.audit import audit_script
from mixprec.errors import InvalidValueError, MisuseError

HEAD = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
"""


def script(folder, body):
    path = folder / "train.py"
    path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    return path


def line_of(path, words):
    return next(i for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if words in line)


def test_a_long_run_is_ended_early(tmp_path):
    """A loop that would never end is watched, timed and ended; what follows it never runs."""
    path = script(
        tmp_path,
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        while True:
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.randn(16, 32)).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert report.precision == "float16"
    assert report.trains
    assert report.timing.of("float16").steps >= 3
    assert report.regions[0].location.line == line_of(path, "torch.autocast")
    assert report.notes == ()


def test_a_float32_control_in_the_same_process_is_the_measure(tmp_path):
    """Both precisions are timed where parameters have the same shapes, and the 16-bit one is reported."""
    path = script(
        tmp_path,
        """
        def run(mixed):
            net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(30):
                with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                    loss = net(torch.randn(8, 16)).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        run(False)
        run(True)
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert report.precision == "bfloat16"
    assert {row.precision for row in report.timing.steps} == {"float32", "bfloat16"}


def test_inference_without_an_optimizer_is_audited_call_by_call(tmp_path):
    """Twenty calls of a model; the script ends by itself."""
    path = script(
        tmp_path,
        """
        with torch.inference_mode():
            for _ in range(20):
                with torch.autocast("cpu", torch.bfloat16):
                    model(torch.randn(16, 32)).float().cpu().numpy()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert not report.trains
    assert report.products.flops == 2 * 16 * (32 * 64 + 64 * 8)
    assert [row.location.line for row in report.syncs] == [line_of(path, ".cpu()")]
    assert report.timing.of("bfloat16").steps >= 3


def test_inference_in_both_precisions_is_timed_in_both(tmp_path):
    """From one call of the model to the next, by the region that the call was in, also where it is entered inside."""
    path = script(
        tmp_path,
        """
        class Net(nn.Module):
            def forward(self, x, low):
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    return model(x)
        net = Net()
        with torch.no_grad():
            for index in range(120):
                net(torch.randn(16, 32), index % 2 == 0)
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert {row.precision for row in report.timing.steps} == {"bfloat16", "float32"}
    assert all(row.steps >= 3 for row in report.timing.steps)


def test_an_evaluation_before_training_is_not_taken_for_the_whole_script(tmp_path):
    """Fifty batches under no_grad, then training: the training step is reported."""
    path = script(
        tmp_path,
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            for _ in range(50):
                model(torch.randn(16, 32))
        for _ in range(30):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(16, 32)).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert report.trains
    assert report.timing.of("bfloat16").steps >= 3


def test_a_wrapped_optimizer_steps_once_and_the_clock_is_read_where_it_is(tmp_path):
    """KahanSum steps AdamW several times per step; those are parts of one, and clocks on a CPU are no finding."""
    path = script(
        tmp_path,
        """
        import time
        import mixprec
        model = model.bfloat16()
        optimizer = mixprec.KahanSum(torch.optim.AdamW(model.parameters()), chunk=600)
        for _ in range(12):
            begin = time.perf_counter()
            model(torch.randn(16, 32, dtype=torch.bfloat16)).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            took = time.perf_counter() - begin
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)
    state = [line for line in report.memory.lines if line.kind.value == "optimizer state" and line.dtype == "int16"]

    assert report.products.flops == 2 * 16 * (2 * 32 * 64 + 3 * 64 * 8)
    assert {row.precision for row in report.timing.steps} == {"bfloat16"}
    assert [line.bytes for line in state] == [2 * (32 * 64 + 64 + 64 * 8 + 8)]
    assert [f.code for f in report.findings if f.code == "MP111"] == []


def test_forward_and_backward_without_an_optimizer_is_audited(tmp_path):
    """A step is a backward pass then."""
    path = script(
        tmp_path,
        """
        for _ in range(30):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(16, 32)).float().square().mean()
            loss.backward()
            model.zero_grad()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    assert report.trains
    assert report.products.flops == 2 * 16 * (2 * 32 * 64 + 3 * 64 * 8)


def test_waiting_for_data_is_measured(tmp_path):
    """A data set that sleeps is found at the line of the loop."""
    path = script(
        tmp_path,
        """
        import time
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 4000
            def __getitem__(self, index):
                time.sleep(0.004)
                return torch.randn(32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in torch.utils.data.DataLoader(Slow(), batch_size=16):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    (finding,) = [f for f in report.at_fault if f.code == "MP102"]
    assert finding.location.line == line_of(path, "DataLoader(")


def test_a_script_that_never_gets_there_is_an_error(tmp_path):
    """The error carries what the script said; a script that is not there is another."""
    path = script(tmp_path, "raise RuntimeError('no data here')")

    with pytest.raises(MisuseError, match="no data here"):
        audit_script(Command((str(path),)), seconds=60)
    with pytest.raises(InvalidValueError, match=r"nowhere\.py"):
        audit_script(Command((str(tmp_path / "nowhere.py"),)))


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mixprec", "audit", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


def test_the_command_exits_1_where_it_warns_and_passes_arguments_on(tmp_path):
    """Anomaly detection, switched on by the script's own argument, is found at its line."""
    path = script(
        tmp_path,
        """
        import sys
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            with torch.autograd.set_detect_anomaly("--debug" in sys.argv):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(torch.randn(16, 32)).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    )
    bad, good = run("--format", "json", path, "--debug"), run("--format", "json", path)

    assert (bad.returncode, good.returncode) == (1, 0), bad.stderr + good.stderr
    (finding,) = [f for f in json.loads(bad.stdout)["findings"] if f["severity"] == "warning"]
    assert (finding["code"], finding["location"]["line"]) == ("MP109", line_of(path, "set_detect_anomaly"))


def test_the_command_exits_2_where_it_could_not_run(tmp_path):
    """No such script."""
    result = run(tmp_path / "nowhere.py")

    assert result.returncode == 2
    assert "nowhere.py" in result.stderr


def test_a_loop_over_time_in_each_step_is_no_inference(tmp_path):
    """A cell that is called twenty times before the backward pass makes one step, with one region per call."""
    path = script(
        tmp_path,
        """
        cell = nn.GRUCell(32, 64)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
        for _ in range(12):
            state = torch.zeros(16, 64)
            for _ in range(20):
                with torch.autocast("cpu", torch.bfloat16):
                    state = cell(torch.randn(16, 32), state)
            optimizer.zero_grad()
            state.float().square().mean().backward()
            optimizer.step()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90)

    (finding,) = [f for f in report.at_fault if f.code == "MP105"]
    assert finding.location.line == line_of(path, "torch.autocast")
    assert report.regions[0].count == 20


def test_other_precisions_are_measured_where_asked(tmp_path):
    """The script's own region is entered with another dtype, or off, for a few steps each."""
    path = script(
        tmp_path,
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(16, 32)).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    )
    report = audit_script(Command((str(path),)), seconds=90, measure=True)

    by = {row.precision: row.by for row in report.timing.steps}
    assert by == {"bfloat16": "script", "float32": "audit", "float16": "audit"}
