"""Why memory did not drop and the speed-up never came, in numbers from a few real steps, and what to change."""

from __future__ import annotations

from mixprec.audit._audit import audit
from mixprec.audit._report import AuditReport

__all__ = ["AuditReport", "audit"]
