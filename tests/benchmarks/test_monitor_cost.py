"""What a level costs is the mean of its ordinary steps and those that are looked at, each measured in its own turn."""

from __future__ import annotations

import pytest
import torch

from benchmarks import monitor_cost
from benchmarks.harness import Bench, Race
from mixprec.monitor import Level, Monitor


def test_a_level_costs_what_its_steps_cost_in_the_mean():
    """With every fourth step twice as long as the bare one and the others 10 % longer, the mean is 1.325."""
    often = Race({monitor_cost.BARE: [1.0, 2.0], monitor_cost.ordinary("made"): [1.1, 2.2]})
    seldom = Race({monitor_cost.BARE: [3.0, 1.0], monitor_cost.looked_at("made"): [6.0, 2.0]})

    row = monitor_cost.level_row(often, seldom, Level("made", every=4, elements=16))

    assert row["cost"] == pytest.approx((3 * 1.1 + 2.0) / 4)
    assert (row["median_ms"], row["looked_ms"]) == (pytest.approx(1650.0), pytest.approx(4000.0))


def test_a_level_that_looks_at_every_step_costs_what_such_a_step_costs():
    """No ordinary step of it is timed."""
    seldom = Race({monitor_cost.BARE: [1.0, 2.0], monitor_cost.looked_at("made"): [1.5, 3.0]})

    row = monitor_cost.level_row(seldom, seldom, Level("made", every=1, elements=16))

    assert (row["cost"], row["median_ms"]) == (pytest.approx(1.5), pytest.approx(2250.0))


def test_only_one_monitor_hears_at_a_time(tiny, tmp_path):
    """In the bare contender's turn nothing is tapped; in each other's turn its own monitor alone counts steps, one
    more than are timed.
    """
    original = torch.autograd.backward
    (size,) = monitor_cost.SIZES
    contenders = [
        *monitor_cost.frequent(size, "cpu", str(tmp_path)),
        *monitor_cost.rare(size, "cpu", str(tmp_path))[1:4],
    ]
    monitors = []
    for contender in contenders:
        contender.prepare()
        monitor = monitor_cost.Watched.heard.monitor
        assert (torch.autograd.backward is original) is (monitor is None)
        contender.call()
        monitors.append(monitor)
    monitor_cost._finish()

    assert torch.autograd.backward is original
    assert [isinstance(monitor, Monitor) for monitor in monitors] == [False, False, *[True] * 5]
    for monitor in monitors[2:]:
        monitor.flush()
        assert len(monitor.records) == 1 + size.turn


def test_the_peers_take_part(tiny):
    """Anomaly detection has a row in the table, the levels and the bare step too."""
    answer = monitor_cost.run(Bench(share=0.0), 1e9)

    (table,) = answer.tables
    names = [row["contender"] for row in table.rows]
    bare = [monitor_cost.BARE, monitor_cost.AGAIN]
    assert names[:6] == ["light", "standard", "deep", *bare, monitor_cost.ANOMALY]
    assert [target.wanted for target in answer.targets] == [1.02, 1.05]
