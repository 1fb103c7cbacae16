"""A verdict takes its name and its repair from the catalogue; a judge adds what it saw and where."""

from __future__ import annotations

from collections.abc import Iterable

from mixprec.causes import find_cause
from mixprec.doctor._arm import Examination
from mixprec.records import Confidence, Evidence, Finding, Fix, Location, Severity, Verdict

__all__ = ["confidence_of_protocol", "lint_finding", "say"]


def say(
    code: str,
    message: str,
    at: Location | None = None,
    *,
    evidence: Iterable[Evidence] = (),
    confidence: Confidence = Confidence.CONSISTENT,
    ruled_out: Iterable[Evidence] = (),
    severity: Severity = Severity.ERROR,
) -> Verdict:
    """A verdict of cause `code`."""
    cause = find_cause(code)
    return Verdict(
        code=cause.code,
        name=cause.name,
        severity=severity,
        message=message,
        location=at or Location(),
        evidence=tuple(evidence),
        fix=Fix(cause.fix),
        confidence=confidence,
        ruled_out=tuple(ruled_out),
    )


def lint_finding(examination: Examination, *codes: str) -> Finding | None:
    """What lint found of these causes in the same script; a finding alone is no verdict on a run."""
    return next((finding for finding in examination.lint if finding.code in codes), None)


def confidence_of_protocol(examination: Examination, code: str) -> Confidence:
    """A fault of protocol that the run showed is confirmed if the text of the script shows it as well."""
    return Confidence.CONFIRMED if lint_finding(examination, code) else Confidence.CONSISTENT
