"""Doctor: controlled experiments on an unmodified script, ending in a cause.

`examine_script(Command(("train.py",)))` runs a script in arms and returns a `Diagnosis`. Nothing here imports torch;
the arms, which are processes of their own, do.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, ArmPlan, Examination, Intervention
from mixprec.doctor._diagnosis import Diagnosis, Patch
from mixprec.doctor._examine import Progress, examine_script

__all__ = ["Arm", "ArmPlan", "Diagnosis", "Examination", "Intervention", "Patch", "Progress", "examine_script"]
