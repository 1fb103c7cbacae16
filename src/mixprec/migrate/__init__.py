"""Code moves between mixed-precision APIs only where every use of a name is understood; the rest is refused by line.

    migration = migrate(source, to="mixprec")
    print(migration.diff("train.py"))

`mixprec migrate` is the command. It reads text and imports neither torch nor the code.
"""

from __future__ import annotations

from mixprec.migrate._migrate import TARGETS, migrate
from mixprec.migrate._result import Migration, Note, Refusal

__all__ = ["TARGETS", "Migration", "Note", "Refusal", "migrate"]
