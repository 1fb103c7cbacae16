"""The example of a monitored run trains, is recorded, and is warned of when it is broken."""

from __future__ import annotations

from mixprec.monitor import read_run


def test_the_sound_run_is_silent_and_recorded(example, tmp_path, capsys):
    """Every step is in the folder, the loss falls, and no alert is raised."""
    result = example("monitor_a_run").main(["--folder", str(tmp_path), "--steps", "60", "--level", "deep"])

    steps = read_run(tmp_path).steps
    assert len(steps) == 60
    assert steps[-1].loss < steps[0].loss / 2
    assert result["alerts"] == 0
    assert "alerts: none" in capsys.readouterr().out


def test_the_broken_run_is_warned_of(example, capsys):
    """With a learning rate that is far too high the monitor says what happened within a few steps."""
    result = example("monitor_a_run").main(["--break-it", "--steps", "60"])

    assert result["alerts"] >= 1
    assert "MP133 nan-hidden-in-log" in capsys.readouterr().out
