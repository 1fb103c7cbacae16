"""Each kind of mistake is found however it is written, and its nearest healthy neighbour is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mixprec.lint import Project, lint_source
from mixprec.records import Severity

HEAD = """\
import copy
import sys
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

"""
HEALTHY = "ok"


def variants() -> list[tuple[str, str, str]]:
    """(code or `ok`, what it shows, source) of every entry in variants.txt."""
    text = Path(__file__).with_name("variants.txt").read_text(encoding="utf-8")
    entries = []
    for part in text.split("=== ")[1:]:
        title, _, source = part.partition("\n")
        code, _, what = title.partition(" ")
        entries.append((code, what, HEAD + source))
    return entries


VARIANTS = variants()


@pytest.mark.parametrize(("code", "what", "source"), VARIANTS, ids=[f"{code}: {what}" for code, what, _ in VARIANTS])
def test_a_variant_yields_its_code_and_nothing_else_that_matters(code, what, source):
    """A faulty script yields its code and no other warning or error; a healthy one yields none at all."""
    compile(source, "variant.py", "exec")
    found = lint_source(source, "variant.py", project=Project())
    matters = {finding.code for finding in found if finding.severity is not Severity.INFO}

    if code == HEALTHY:
        assert matters == set()
    else:
        assert code in {finding.code for finding in found}
        assert matters <= {code}


def test_every_faulty_kind_has_a_healthy_neighbour():
    """There are about as many healthy scripts as faulty ones: silence is tested as much as speech."""
    healthy = sum(code == HEALTHY for code, _, _ in VARIANTS)

    assert healthy > 0.6 * (len(VARIANTS) - healthy)
