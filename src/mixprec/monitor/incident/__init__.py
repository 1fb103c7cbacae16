"""The evidence of one failed step, saved when it fails and whole on disk or not there."""

from __future__ import annotations

from mixprec.monitor.incident._attach import attach, watch
from mixprec.monitor.incident._moment import Call, Moment
from mixprec.monitor.incident._random import RandomStates
from mixprec.monitor.incident._read import Incident, load_incident, load_incidents
from mixprec.monitor.incident._store import IncidentStore
from mixprec.monitor.incident._sums import checksum
from mixprec.monitor.incident._watch import IncidentWatch

__all__ = [
    "Call",
    "Incident",
    "IncidentStore",
    "IncidentWatch",
    "Moment",
    "RandomStates",
    "attach",
    "checksum",
    "load_incident",
    "load_incidents",
    "watch",
]
