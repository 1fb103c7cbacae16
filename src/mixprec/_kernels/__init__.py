"""Kernels beside PyTorch's own are twins: the results are the same, and nothing runs on them unless it is asked for.

`means_of` gives what reads and multiplies gradients, `MasterSteps` what steps masters on 16-bit gradients.
"""

from __future__ import annotations

from mixprec._kernels._choice import Kernels, chosen
from mixprec._kernels._means import Means, means_of
from mixprec._kernels._stand_in import MasterSteps

__all__ = ["Kernels", "MasterSteps", "Means", "chosen", "means_of"]
