"""An unmodified script runs in a process of its own, our code is called in it before it can use torch, and nothing
of it is left behind.

`run_script(Command(("train.py", "--lr", "1")), entry="package.module:function", options={...})` starts
`python train.py --lr 1`. As soon as torch has been imported there (however: `import torch`, `from torch import nn`,
by a library, by a C extension) and before the script goes on, `function(options)` is called; what it returns, if
anything, is called at exit. The same happens in every Python process that the script starts (torchrun, spawn), and
never in one that does not import torch. `mixprec._script.child` is what the entry may use.
"""

from __future__ import annotations

from mixprec._script._command import Command
from mixprec._script._outcome import Outcome
from mixprec._script._run import run_script

__all__ = ["Command", "Outcome", "run_script"]
