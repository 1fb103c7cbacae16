"""One read of the gradients yields whether all are finite and their exact global norm; nothing is written to learn it.

`collect` turns whatever an optimizer holds (dense, sparse, DTensor, complex, any mix of dtypes and devices) into plain
tensors, `read` reads them once, `multiply_` multiplies them once where an optimizer cannot take the factor itself.
"""

from __future__ import annotations

from mixprec._gradients._amax import amax
from mixprec._gradients._collect import Gradients, collect, refuse_half
from mixprec._gradients._multiply import multiply_, reciprocal
from mixprec._gradients._norm import look_again, square_sum, wide, wide_square_sum
from mixprec._gradients._parameters import parameter_name, parameters
from mixprec._gradients._place import float32, host_number, moved, on_host
from mixprec._gradients._plan import Plan, Plans, make_plan
from mixprec._gradients._read import Clipping, HostReader, Reader, Reading, WaitlessReader, reader_for

__all__ = [
    "Clipping",
    "Gradients",
    "HostReader",
    "Plan",
    "Plans",
    "Reader",
    "Reading",
    "WaitlessReader",
    "amax",
    "collect",
    "float32",
    "host_number",
    "look_again",
    "make_plan",
    "moved",
    "multiply_",
    "on_host",
    "parameter_name",
    "parameters",
    "reader_for",
    "reciprocal",
    "refuse_half",
    "square_sum",
    "wide",
    "wide_square_sum",
]
