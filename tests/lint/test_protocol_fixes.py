"""A safe fix repairs what was found, keeps what it does not touch, and is not asked for again."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from mixprec.lint import all_rules, lint_source
from mixprec.lint._apply import fix
from mixprec.lint._decode import decode
from mixprec.lint._document import ScriptDocument
from mixprec.records import Severity

PLACE = Path(__file__).with_name("mutations") / "generator.py"


def load():
    spec = importlib.util.spec_from_file_location("mutation_generator_for_fixes", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def lint(source):
    return lint_source(source, "fixed.py")


def warned(source):
    return {finding.code for finding in lint(source) if finding.severity is not Severity.INFO}


def fixed(source, unsafe=False):
    return fix(ScriptDocument(decode(source.encode())), lint, unsafe=unsafe).document.source


def commented(source):
    """`source` with a comment of its own behind every line of code."""
    lines = source.split("\n")
    return "\n".join(f"{line}  # line {n}" if line.strip() else line for n, line in enumerate(lines))


def lost(before, after):
    """How many of the comments are gone."""
    return sum(line.partition("  # ")[2] not in after for line in before.split("\n"))


MUTANTS = {mutant.source: mutant for mutant in load().mutants()}
SAFE = {"MP002", "MP003", "MP005", "MP006", "MP083"}
BROKEN = [
    m
    for m in MUTANTS.values()
    if m.codes <= SAFE and any(f.code in m.codes and f.fix and f.fix.safe for f in lint(m.source))
]
REMOVED = {"step_twice", "update_between_optimizers"}
"""Mistakes that are repaired by taking a line out, and its comment with it."""
SAMPLE = [*{m.operator: m for m in BROKEN}.values(), *BROKEN[::6]]


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: f"{mutant.operator}-{mutant.script}")
def test_a_safe_fix_repairs_for_good(mutant):
    """The fixed script is Python, gets no warning, keeps every comment, and fixing it again changes nothing."""
    source = commented(mutant.source)
    after = fixed(source)

    ast.parse(after)
    assert warned(source) & mutant.codes
    assert not warned(after) & mutant.codes
    assert lost(source, after) <= (1 if mutant.operator in REMOVED else 0)
    assert fixed(after) == after


def test_most_mistakes_with_a_safe_fix_can_be_fixed():
    """Of the mutants whose rule has a safe fix, at least two thirds get one; the others are only described."""
    every = [m for m in MUTANTS.values() if m.codes <= SAFE]

    assert len(BROKEN) >= len(every) * 2 / 3


START = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x)
    scaler.scale(loss).backward()
"""


ON_CPU = """
import torch

loader = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(3)]
"""


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.code in SAFE], ids=lambda rule: rule.code)
def test_a_fixed_script_runs(rule):
    """What the fix makes of a rule's bad example trains in PyTorch without an error or a warning."""
    script = fixed(rule.bad).replace('"cuda"', '"cpu"').replace(".cuda()", "")
    names: dict[str, object] = {}

    exec(compile(ON_CPU + script, "fixed.py", "exec"), names)

    weights = [value for value in names.values() if isinstance(value, torch.nn.Module)]
    assert weights
    assert all(torch.isfinite(p).all() for module in weights for p in module.parameters())


def test_the_text_around_a_fix_stays_byte_by_byte():
    """Odd spacing, comments and other characters around an inserted line are not touched."""
    end = "    norm  =  torch.nn.utils.clip_grad_norm_( model.parameters(),1.0 )  # Größe – 大\n"
    end += "    scaler.step(optimizer)\n"
    source = START + end + "    scaler.update()\n"

    assert fixed(source) == START + "    scaler.unscale_(optimizer)\n" + end + "    scaler.update()\n"


def test_line_ends_and_tabs_are_kept():
    """A file with CRLF and tabs gets its new line with CRLF and a tab."""
    source = (START + "    scaler.step(optimizer)\n").replace("    ", "\t").replace("\n", "\r\n")

    assert fixed(source) == source + "\tscaler.update()\r\n"


def test_a_file_without_a_last_line_end():
    """A fix behind the last line of a file that does not end its last line."""
    source = START + "    scaler.step(optimizer)"

    assert fixed(source) == source + "\n    scaler.update()"


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
SHARED = [
    f"    {CLIP}; scaler.step(optimizer)\n    scaler.update()\n",
    f"    if norm: {CLIP}\n    scaler.step(optimizer)\n    scaler.update()\n",
]


@pytest.mark.parametrize("end", SHARED)
def test_a_statement_that_shares_its_line_is_left_alone(end):
    """Where a line cannot be put in without touching others, the mistake is named and nothing is changed."""
    source = START + end

    assert fixed(source) == source
    assert "MP002" in warned(source)


def test_a_fix_for_one_branch_only_is_not_applied():
    """A scaler that may be None on the other path is not called unguarded."""
    source = """\
import torch

def train(model, optimizer, loader, scaler=None):
    for x in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler is not None):
            loss = model(x)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
"""
    assert warned(source) == {"MP002"}
    assert fixed(source) == source


def test_a_region_of_one_statement_is_not_emptied():
    """Backward as the only statement of its region stays there: a region cannot be empty."""
    source = START.replace("    scaler.scale(loss).backward()\n", "") + (
        '    with torch.autocast("cuda", dtype=torch.float16):\n'
        "        scaler.scale(loss).backward()\n"
        "    scaler.step(optimizer)\n    scaler.update()\n"
    )

    assert warned(source) == {"MP083"}
    assert fixed(source) == source


def test_a_prompted_fix_is_made_only_when_asked_for():
    """Scaling the loss is offered, and made when all fixes are asked for."""
    source = START.replace("scaler.scale(loss).backward()", "loss.backward()") + (
        "    scaler.step(optimizer)\n    scaler.update()\n"
    )

    assert fixed(source) == source
    assert warned(fixed(source, unsafe=True)) == set()
