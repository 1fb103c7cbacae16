"""Renderings of records: text for people, JSON and SARIF for programs, one HTML page for everybody.

A renderer takes records and gives a string (or writes to a rich console); it decides nothing.
"""

from __future__ import annotations

__all__: list[str] = []
