"""docs/benchmarks.md shows the numbers of benchmarks/results/cpu.json, and never others.

python -m benchmarks.page
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.render import machine_line, markdown, targets_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cpu.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: python -m benchmarks.page -->\n", "<!-- end of results -->\n"


def with_results(page: str, document: Mapping[str, Any]) -> str:
    """`page` with everything between its marks replaced by the tables of `document`."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = [markdown(table) for table in (targets_table(document), *document["tables"])]
    return before + BEGIN + "\n" + "\n".join([machine_line(document) + "\n", *tables]) + "\n" + END + after


def main() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")


if __name__ == "__main__":
    main()
