"""Pages: one self-contained file each, that works without a network, on a phone, in light and in dark.

The text comes from Jinja templates beside this file, the curves from plotly.js, which is written into the page.
"""

from __future__ import annotations

from mixprec.report.html._page import audit_page, comparison_page, run_page

__all__ = ["audit_page", "comparison_page", "run_page"]
