"""Contenders run in turn, on equal terms, and what is compared is compared within a round."""

from __future__ import annotations

import gc

import pytest

from benchmarks.harness import Bench, Column, Contender, Race, Target


def contenders(log, names):
    return [Contender(n, lambda n=n: log.append(n), lambda n=n: log.append(f"prepare {n}")) for n in names]


def test_everyone_runs_equally_often(bench):
    """Each contender has one time per round, and at least two rounds."""
    race = bench.race(contenders([], "abc"), seconds=0.0)

    assert {len(times) for times in race.times.values()} == {race.rounds}
    assert race.rounds >= 2


def test_the_order_changes_every_round(bench, monkeypatch):
    """Who begins a round is another contender in the next one, and who comes after whom changes too."""
    monkeypatch.setattr(Bench, "_calls_per_round", lambda self, contender: 1)
    log = []
    bench.race(contenders(log, "abc"), seconds=0.0)
    calls = [entry for entry in log if not entry.startswith("prepare")]

    assert calls == ["a", "b", "c", "b", "a", "c"]


def test_every_call_is_prepared(bench):
    """A contender's preparation runs before each of its calls, however many a round has."""
    log = []
    bench.race(contenders(log, "ab"), seconds=0.0)

    assert log[::2] == [f"prepare {name}" for name in log[1::2]]


def test_short_programs_are_called_many_times_a_round(bench):
    """What takes no time is called 50 times a round, so that a clock's step does not matter."""
    log = []
    race = bench.race(contenders(log, "a"), seconds=0.0)

    assert log.count("a") == 3 + 50 * race.rounds


def test_the_collector_rests_during_a_race_and_only_then(bench):
    """Python's cycle collector is off inside measurements, on afterwards, also after an error."""
    seen = []

    def fail():
        seen.append(gc.isenabled())
        if len(seen) == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench.race([Contender("a", fail)], seconds=0.0)
    assert not seen[-1]
    assert gc.isenabled()


def test_ratio_is_taken_within_rounds():
    """A machine that is 10 times as slow in one round changes times, not ratios."""
    race = Race({"ours": [1.0, 10.0, 1.0], "theirs": [2.0, 20.0, 2.0]})

    assert race.row("ours", "theirs") == {
        "contender": "ours",
        "median_ms": 1000.0,
        "minimum_ms": 1000.0,
        "peer": "theirs",
        "ratio": 2.0,
        "quartiles": [2.0, 2.0],
        "rounds": 3,
    }


def test_bandwidth_counts_reads_and_writes(bench):
    """A copy and an in-place product both give a positive number of bytes per second."""
    found = bench.bandwidth()

    assert set(found) == {"copy", "multiply"}
    assert all(number > 0 for number in found.values())


@pytest.mark.parametrize(
    ("value", "at_most", "met"), [(1.3, False, True), (1.29, False, False), (1.3, True, True), (1.31, True, False)]
)
def test_target_is_met_up_to_its_limit(value, at_most, met):
    """A target is met at its limit and not beyond."""
    assert Target("t", 1.3, value, at_most).met is met


def test_a_missing_value_is_a_dash():
    """A column writes what is in the row in its form, and a dash where nothing is."""
    column = Column("quartiles", "", "{0[0]:.1f} to {0[1]:.1f}")

    assert column.write({"quartiles": [1.0, 2.0]}) == "1.0 to 2.0"
    assert column.write({}) == "–"
