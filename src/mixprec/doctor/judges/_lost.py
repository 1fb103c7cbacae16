"""A training that falls behind its FP32 control, where only the text of the script shows what it loses."""

from __future__ import annotations

import dataclasses

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._reading import learns_less
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Evidence, Severity, Verdict

__all__ = ["lint_names_what_is_lost"]

ROUNDED = ("MP168", "MP065", "MP069", "MP063", "MP061", "MP066", "MP064", "MP067", "MP098")
"""Causes that cost accuracy without a number that is not finite, the plainest first."""


def lint_names_what_is_lost(examination: Examination) -> Verdict | None:
    """What lint says of rounding in this script, where the FP32 control learns clearly better."""
    behind = learns_less(examination)
    read = next((found for code in ROUNDED if (found := lint_finding(examination, code)) is not None), None)
    if behind is None or read is None or read.severity is Severity.INFO:
        return None
    first, here, exact = behind
    verdict = say(
        read.code,
        read.message,
        read.location,
        evidence=(
            Evidence("first loss", first, arm="observe"),
            Evidence("last loss", here, arm="observe"),
            Evidence("last loss in FP32", exact, arm="fp32"),
        ),
    )
    return verdict if read.fix is None else dataclasses.replace(verdict, fix=read.fix)
