"""An audit is one value: what a few real steps did with memory, time and dtypes, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mixprec._hardware import Traits
from mixprec.audit._bound import Bound
from mixprec.audit._casts import Casts
from mixprec.audit._clocks import ClockRow
from mixprec.audit._flags import Flags
from mixprec.audit._forecast import Forecast
from mixprec.audit._memory import Memory
from mixprec.audit._ops import OpRow, Promotion
from mixprec.audit._products import Products
from mixprec.audit._syncs import SyncRow
from mixprec.records import Finding, Location, Severity

__all__ = ["AuditReport", "Region", "StepTime", "Timing"]


@dataclass(frozen=True)
class Region:
    """An autocast region of the step, by the line that enters it; `dtype` "" is a disabled one, an `island` where it is
    inside of an enabled one.
    """

    location: Location
    dtype: str
    count: int
    island: bool = False


@dataclass(frozen=True)
class StepTime:
    """Time of a step in one precision, in seconds: a quarter of `steps` steps that nothing watched took less.

    Others who use the machine make steps slower and never faster, so the quick quarter says more than the median.

    `busy` is the same of the processor time of the script's threads, which does not grow when others use the machine.
    `by` is "script" where the script itself ran so, "audit" where the audit changed the precision to measure it.
    """

    precision: str
    seconds: float
    steps: int
    by: str = "script"
    busy: float | None = None


@dataclass(frozen=True)
class Timing:
    """Measured times. `data_share` is the part of a step spent waiting for a DataLoader, None where none was used."""

    steps: tuple[StepTime, ...] = ()
    data_share: float | None = None
    data_at: Location = field(default_factory=Location)

    def of(self, precision: str) -> StepTime | None:
        """The time in that precision ("float32", "bfloat16", "float16")."""
        return next((row for row in self.steps if row.precision == precision), None)


@dataclass(frozen=True)
class AuditReport:
    """What the audit saw and says. `precision` is the dtype that computes most, `low` that of the autocast regions, ""
    without any.

    `measured_on` is the device that ran the steps; None for a dry run, of which nothing is timed. `findings` are
    ordered by what there is to gain.
    """

    precision: str
    low: str
    device_type: str
    measured_on: Traits | None
    findings: tuple[Finding, ...]
    memory: Memory
    forecasts: tuple[Forecast, ...]
    products: Products
    casts: Casts
    syncs: tuple[SyncRow, ...]
    clocks: tuple[ClockRow, ...]
    ops: tuple[OpRow, ...]
    promotions: tuple[Promotion, ...]
    regions: tuple[Region, ...]
    timing: Timing
    flags: Flags
    bound: Bound
    trains: bool = True
    steps_optimizer: bool = True
    recorded: int = 1
    op_calls: int = 0
    notes: tuple[str, ...] = ()

    @property
    def mixed(self) -> bool:
        """Whether anything ran in an autocast region of a 16-bit dtype."""
        return self.low != ""

    @property
    def at_fault(self) -> tuple[Finding, ...]:
        """The findings that matter: warnings and errors."""
        return tuple(f for f in self.findings if f.severity is not Severity.INFO)
