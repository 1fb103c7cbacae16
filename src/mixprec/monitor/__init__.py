"""A run is watched for next to nothing, and warned of before it breaks; see `Monitor`."""

from __future__ import annotations

from mixprec.monitor._level import LEVELS, Level
from mixprec.monitor._monitor import Monitor
from mixprec.monitor._read import RankRun, Run, read_run
from mixprec.monitor._record import ModuleRecord, StepRecord

__all__ = ["LEVELS", "Level", "ModuleRecord", "Monitor", "RankRun", "Run", "StepRecord", "read_run"]
