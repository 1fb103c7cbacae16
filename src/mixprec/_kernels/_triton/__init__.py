"""Everything here is written in Triton, and importing it is what needs the `kernels` extra."""

from __future__ import annotations

from mixprec.errors import MissingExtraError

try:
    import triton  # noqa: F401 # to fail here, once, rather than in every file
except ImportError as error:
    raise MissingExtraError("triton", "kernels", "Kernels.TRITON") from error
