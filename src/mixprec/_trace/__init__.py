"""What ran: ops, their lines, and where numbers went wrong."""

from __future__ import annotations

from mixprec._trace._document import from_document
from mixprec._trace._locate import Origin, locate
from mixprec._trace._nested import tensors_in
from mixprec._trace._scale import Flush, Room, flushes, room
from mixprec._trace._site import is_user_file, source_line, user_frame, user_site
from mixprec._trace._tracer import Tracer

__all__ = [
    "Flush",
    "Origin",
    "Room",
    "Tracer",
    "flushes",
    "from_document",
    "is_user_file",
    "locate",
    "room",
    "source_line",
    "tensors_in",
    "user_frame",
    "user_site",
]
