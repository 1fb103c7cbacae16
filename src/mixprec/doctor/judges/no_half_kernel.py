"""MP053, MP164: there is no 16-bit kernel for an op, of linear algebra or another."""

from __future__ import annotations

import re

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_says, described, here
from mixprec.doctor.judges._reading import text_of
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict

LINEAR_ALGEBRA = re.compile(
    r"linalg|lu_|cholesky|svd|eig|qr|inverse|det|lstsq|triangular|geqrf|orgqr|ormqr|fft|householder|matrix_exp|pinv|solve",
    re.IGNORECASE,
)

BY_NAME = re.compile(
    r"\bfft\b|\blinalg\b|\.i?r?s?t?fft[2n]?\(|torch\.(?:svd|qr|lu|inverse|det|cholesky|lstsq|pinverse)\("
)
"""The same families as a line of Python calls them."""


def judge(examination: Examination) -> Verdict | None:
    """The exception names the op; whether it is linear algebra decides between the two."""
    found = crash_says(
        examination,
        r"not implemented for '(?:Half|BFloat16)'",
        r"low precision dtypes not supported",
        r"could not create a primitive",
        r"support tensors? of type:? (?:Half|BFloat16)",
        r"Unsupported dtype .*(?:Half|BFloat16|Float16)",
        r"not (?:supported|implemented).*(?:half|bfloat16|float16)",
        r"expected .*float.* (?:but )?got.*(?:half|bfloat16).*(?:linalg|fft)",
    )
    if found is None:
        return None
    arm, crash = found
    confidence, controls = confidence_of_crash(examination, crash)
    named = LINEAR_ALGEBRA.search(crash.message.split("not implemented")[0]) or BY_NAME.search(text_of(here(crash)))
    algebra = named and "primitive" not in crash.message
    module = f" in {crash.module_kind}" if crash.module_kind else ""
    module += f" '{crash.module}'" if crash.module else ""
    return say(
        "MP053" if algebra else "MP164",
        f"This op{module} has no 16-bit kernel on this device: "
        + ("linear algebra and FFT need FP32." if algebra else "it runs in FP32 only."),
        here(crash),
        evidence=(described(crash, arm),),
        confidence=confidence,
        ruled_out=controls,
    )
