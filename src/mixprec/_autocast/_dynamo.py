"""torch.compile hands the builtins of `torch._C._nn` to function modes, as eager execution does.

Dynamo asks a set which functions a mode may see, and the set holds public names only: under it the op inside
`F.pad`, `F.interpolate` or `F.mse_loss` would be hidden from a policy that sees it eagerly. The missing builtins are
added to that set. This may go when Dynamo dispatches what eager execution dispatches (seen in torch 2.13).
"""

from __future__ import annotations

import sys

import torch

__all__ = ["teach_dynamo"]

_MODULE = "torch._dynamo.variables.torch"


def teach_dynamo() -> bool:
    """Add the builtins, if Dynamo is loaded and has such a set: whether it has.

    **Cost**: two dictionary lookups when there is nothing to do.
    """
    module = sys.modules.get(_MODULE)
    known = getattr(module, "get_overridable_functions", None)
    if known is None:
        return False
    functions = known()
    if torch._C._nn.pad not in functions:
        functions.update(f for name, f in vars(torch._C._nn).items() if callable(f) and not name.startswith("__"))
    return True


teach_dynamo._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler.assume_constant_result does, without loading torch._dynamo
