"""Doctor: controlled experiments on an unmodified script, ending in a cause.

`examine_script(Command(("train.py",)))` runs a script in arms and returns a `Diagnosis`; nothing of it imports torch,
the arms, which are processes of their own, do. `examine(step_fn, (model, optimizer, scaler))` does the same for a
step that exists only in this process, as in a notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mixprec._script import Command
from mixprec.doctor._arm import Arm, ArmPlan, Examination, Intervention
from mixprec.doctor._diagnosis import Diagnosis, Patch
from mixprec.doctor._examine import Progress, examine_script

if TYPE_CHECKING:
    from mixprec.doctor._notebook import examine

__all__ = [
    "Arm",
    "ArmPlan",
    "Command",
    "Diagnosis",
    "Examination",
    "Intervention",
    "Patch",
    "Progress",
    "examine",
    "examine_script",
]


def __getattr__(name: str) -> Any:
    """`examine` needs torch and is imported when it is first asked for."""
    if name == "examine":
        from mixprec.doctor._notebook import examine

        return examine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
