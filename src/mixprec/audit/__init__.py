"""Why memory did not drop and the speed-up never came, in numbers from a few real steps, and what to change.

The package can be called: `mixprec.audit(model, step)` is `mixprec.audit.audit(model, step)`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from mixprec.audit._audit import audit
from mixprec.audit._dry import dry_run
from mixprec.audit._report import AuditReport
from mixprec.audit._script import audit_script

__all__ = ["AuditReport", "audit", "audit_script", "dry_run"]


class _CallablePackage(types.ModuleType):
    """A module whose call is its namesake's, so that one name serves both."""

    def __call__(self, *args: Any, **kwargs: Any) -> AuditReport:
        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
