"""What ran: ops, their lines, and where numbers went wrong."""

from __future__ import annotations

from mixprec._trace._site import is_user_file, source_line, user_frame, user_site

__all__ = ["is_user_file", "source_line", "user_frame", "user_site"]
