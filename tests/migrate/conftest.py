"""Without libcst, which the `migrate` extra brings, there is nothing to test here."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst", reason="extra: migrate")
