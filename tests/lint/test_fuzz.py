"""No text, however broken, makes the linter crash, hang in a fix, or lose its place."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixprec.lint import CRASHED, all_rules
from mixprec.lint._config import LintConfig
from mixprec.lint._lines import Lines
from mixprec.lint._lint_file import FileResult, Fixing, lint_bytes
from mixprec.records import Finding, Severity

CONFIG = LintConfig(Path("/nowhere"), level=Severity.INFO)

SCRIPT = """
import torch
from torch.cuda.amp import GradScaler, autocast

class Trainer:
    def __init__(self, model, optimizer, args):
        self.scaler = GradScaler(enabled=args.fp16)
        self.optimizer, self.model = optimizer, model.half() if args.half else model

    def step(self, batch, i, n=4):
        with autocast(dtype=torch.float16):
            loss = self.model(batch).masked_fill(batch < 0, -1e9).sum() / n
        self.scaler.scale(loss).backward()
        if (i + 1) % n == 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # mixprec: ignore[MP002] wanted
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)

def main(args):
    trainer = Trainer(torch.nn.Linear(1, 1), torch.optim.Adam([], eps=1e-8), args)
    for epoch in range(3):
        for i, batch in enumerate([]):
            trainer.step(batch, i)
    torch.save({"model": trainer.model.state_dict()}, f"{epoch}.pt")
"""

SEEDS = [SCRIPT, *(text for rule in all_rules() for text in (rule.bad, rule.good))]


def _truncated(source: str, dice: random.Random) -> str:
    return source[: dice.randrange(len(source) + 1)]


def _tokens_swapped(source: str, dice: random.Random) -> str:
    tokens = [*re.findall(r"\w+|\s+|[^\w\s]", source), "\n"]
    for _ in range(dice.randrange(1, 6)):
        one, other = dice.randrange(len(tokens)), dice.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]
    return "".join(tokens)


def _names_swapped(source: str, dice: random.Random) -> str:
    names = sorted({"name", *re.findall(r"[A-Za-z_]\w+", source)})
    one, other = dice.choice(names), dice.choice(names)
    return re.sub(rf"\b{one}\b", other, source)


def _line_dropped(source: str, dice: random.Random) -> str:
    lines = [*source.splitlines(keepends=True), "\n"]
    del lines[dice.randrange(len(lines))]
    return "".join(lines)


def _lines_shuffled(source: str, dice: random.Random) -> str:
    lines = [*source.splitlines(keepends=True), "\n"]
    at = dice.randrange(len(lines))
    return "".join([*lines[:at], *dice.sample(lines[at : at + 4], len(lines[at : at + 4])), *lines[at + 4 :]])


def _odd_character(source: str, dice: random.Random) -> str:
    at = dice.randrange(len(source) + 1)
    return (
        source[:at]
        + dice.choice(["\f", "\x0b", "\u2028", "é", "\U0001f525", "\t", "\r", "\\", "'''", "\ufeff", "\x1c"])
        + source[at:]
    )


def _reindented(source: str, dice: random.Random) -> str:
    return source.replace("    ", dice.choice(["\t", " ", "  ", "        "]))


def _line_ends(source: str, dice: random.Random) -> str:
    return source.replace("\n", dice.choice(["\r\n", "\r", "\n\n", "\n\f\n"]))


MUTATIONS = [
    _truncated,
    _tokens_swapped,
    _names_swapped,
    _line_dropped,
    _lines_shuffled,
    _odd_character,
    _reindented,
    _line_ends,
]


def _mutants() -> Iterator[str]:
    """Every seed mutated twice, the long script forty times; a third of them are mutated once more."""
    dice = random.Random(20240229)
    for seed in [SCRIPT] * 20 + SEEDS:
        for mutation in dice.sample(MUTATIONS, 2):
            mutant = mutation(seed, dice)
            yield dice.choice(MUTATIONS)(mutant, dice) if dice.random() < 0.3 else mutant


def _check(result: FileResult) -> None:
    """No rule crashed, and every finding stands where its text is."""
    for finding in result.findings:
        assert finding.code != CRASHED, finding.message
        lines = Lines(result.sources.get(finding.location.cell, ""))
        line, column = finding.location.line or 0, finding.location.column or 0
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines.line(line)) + 1


def test_a_crash_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that raises makes the check fail."""

    def crash(rule: object, view: object) -> Iterator[Finding]:
        raise KeyError("planted")

    monkeypatch.setattr(all_rules()[0], "check", crash)
    result, _ = lint_bytes(SCRIPT.encode(), "a.py", CONFIG)
    with pytest.raises(AssertionError, match="planted"):
        _check(result)


def test_mutated_scripts_are_linted_and_fixed() -> None:
    """Truncated, swapped, reindented and spiked sources give findings or none, never an exception, and so do fixes."""
    for mutant in _mutants():
        data = mutant.encode("utf-8", "surrogatepass")
        result, _ = lint_bytes(data, "mutant.py", CONFIG)
        _check(result)
        fixed, document = lint_bytes(data, "mutant.py", CONFIG, Fixing(unsafe=True))
        if document is not None and fixed.after:
            again, _ = lint_bytes(document.encode(), "mutant.py", CONFIG)
            _check(again)
            assert not again.unreadable


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32", "cp1252", "shift_jis", "utf-7"]
)
def test_odd_encodings_are_linted_or_refused(encoding: str) -> None:
    """Bytes in any encoding give findings or the one finding that they cannot be read."""
    for text in (SCRIPT, SCRIPT.replace("wanted", "gewünscht"), f"# coding: {encoding}\n{SCRIPT}"):
        result, _ = lint_bytes(text.encode(encoding, "replace"), "a.py", CONFIG)
        _check(result)


def test_random_bytes_are_refused() -> None:
    """Noise between the words that rules listen for is no reason to crash."""
    dice = random.Random(7)
    for size in range(0, 400, 10):
        data = b"autocast GradScaler\n" + dice.randbytes(size)
        for name in ("a.py", "a.ipynb", "a.json", "a.yaml"):
            result, _ = lint_bytes(data, name, CONFIG)
            assert all(finding.code != CRASHED for finding in result.findings)


@pytest.mark.parametrize(
    "source",
    [
        "autocast" + "(" * 3000 + ")" * 3000,
        "autocast = " + "[" * 150 + "]" * 150,
        "x = autocast" + ".a" * 3000,
        "x = autocast" + " + 1" * 3000,
        "x = " + "-" * 3000 + "autocast",
        "".join("    " * depth + "with autocast('cuda'):\n" for depth in range(90)) + "    " * 90 + "pass\n",
        "".join("    " * depth + "if autocast:\n" for depth in range(18)) + "    " * 18 + "pass\n",
        "autocast\n" + "if a: pass\nelif b: pass\n" * 300,
        "def f(): autocast()\n" + "".join(f"def f{i}(): f{i - 1}()\n" for i in range(1, 400)),
        "a = autocast; " * 500,
        "autocast = autocast\nscaler = scaler\nscaler.scale = scaler.scale(scaler).backward\n",
        "def f():\n    return f()\nf(GradScaler)\nclass A(A): scaler = A()\n",
        "lambda: (yield autocast)\n",
        "match autocast:\n    case {'a': [b, *c]} if (d := b): pass\n",
        "async def f():\n    async with autocast('cuda') as a, b as c: [await x async for x in y]\n",
        "del autocast; global scaler; nonlocal x\n",
        "",
        "\n" * 5000 + "autocast",
    ],
    ids=range(18),
)
def test_extreme_shapes_are_linted(source: str) -> None:
    """Deep nesting, long chains, cycles and rare syntax are linted or refused within the time limit of a test."""
    result, _ = lint_bytes(source.encode(), "a.py", CONFIG, Fixing(unsafe=True))
    assert all(finding.code != CRASHED for finding in result.findings), result.findings


def test_mutated_notebooks_are_linted() -> None:
    """Broken JSON, cells and magics are linted or refused."""
    dice = random.Random(11)
    cells = [{"cell_type": "code", "source": part.splitlines(keepends=True)} for part in SCRIPT.split("\n\n")]
    raw = json.dumps({"cells": [*cells, {"cell_type": "code", "source": "%time autocast()\n!ls"}]}, indent=1)
    for _ in range(120):
        mutation = dice.choice(MUTATIONS)
        result, document = lint_bytes(
            mutation(raw, dice).encode("utf-8", "replace"), "n.ipynb", CONFIG, Fixing(unsafe=True)
        )
        assert all(finding.code != CRASHED for finding in result.findings)
        if document is not None:
            document.encode()
