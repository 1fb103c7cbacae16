"""A piece of advice is a finding and what following it would gain, so that the largest gain is read first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mixprec.causes import find_cause
from mixprec.records import Evidence, Finding, Fix, Location, Severity

__all__ = ["Advice", "fact", "mebibytes", "milliseconds", "percent", "piece"]


@dataclass(frozen=True)
class Advice:
    """`gain` is the part of the step's time or of the peak of memory at stake, 0 to 1."""

    finding: Finding
    gain: float


def piece(
    code: str,
    severity: Severity,
    message: str,
    *,
    gain: float,
    location: Location | None = None,
    evidence: Iterable[Evidence] = (),
    fix: str = "",
) -> Advice:
    """Advice on the cause `code`, with the catalogue's name, and its fix unless another is given."""
    cause = find_cause(code)
    finding = Finding(
        code=code,
        name=cause.name,
        severity=severity,
        message=message,
        location=location or Location(),
        evidence=tuple(evidence),
        fix=Fix(fix or cause.fix),
    )
    return Advice(finding, max(0.0, min(1.0, gain)))


def fact(what: str, value: float | int | str | bool | None, unit: str = "") -> Evidence:
    """One measured fact."""
    return Evidence(what, round(value, 4) if isinstance(value, float) else value, unit)


def percent(share: float) -> str:
    """`43 %` for 0.43."""
    return f"{100 * share:.0f} %"


def mebibytes(size: int) -> str:
    """`12.5 MiB`, small sizes in KiB."""
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.1f} KiB"


def milliseconds(seconds: float) -> str:
    """`3,290 ms`, `2.1 ms` or `0.054 ms`."""
    value = 1e3 * seconds
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms"
