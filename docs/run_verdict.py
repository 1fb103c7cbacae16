"""Draw the README's picture of a verdict from a real run of the doctor.

Run: python docs/run_verdict.py (half a minute). The script is the tutorial's, which is broken in a known way. Times
are left out, so that the picture changes only when the verdict does.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from mixprec._script import Command
from mixprec.doctor import examine_script
from mixprec.report.diagnosis_text import print_diagnosis

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "verdict.svg"
SCRIPT = "docs/tutorial/overflow.py"
THEME = TerminalTheme(
    (28, 32, 38), (222, 226, 231), [(60, 64, 72), (232, 92, 86), (88, 190, 140), (224, 168, 80), (98, 150, 230),
    (190, 130, 220), (80, 190, 200), (222, 226, 231)],
)  # fmt: skip


def drawn() -> str:
    """The picture, as text."""
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    diagnosis = examine_script(Command((SCRIPT,)), steps=20, fast=True)
    plain = io.StringIO()
    print_diagnosis(Console(file=plain, width=92, highlight=False, markup=False, emoji=False), diagnosis)
    text = plain.getvalue().replace(f"{ROOT}/", "").partition("\narms\n")[0].rstrip()
    wide = max(len(line.rstrip()) for line in text.splitlines())
    screen = Console(record=True, width=wide, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    screen.print(f"$ mixprec doctor --fast --steps 20 {SCRIPT}\n", style="bold")
    for number, line in enumerate(text.splitlines()):
        screen.print(line.rstrip(), style=_style(line, number), no_wrap=True, overflow="ignore", crop=False)
    svg = screen.export_svg(title="mixprec doctor", theme=THEME, unique_id="verdict")
    return re.sub(r"\s*@font-face \{.*?\}\n", "\n", svg, flags=re.DOTALL)


def _style(line: str, number: int) -> str:
    if number == 0:
        return "bold red"
    return "bold" if re.match(r"  (evidence|ruled out|fix|patch)$", line) else ""


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE)
