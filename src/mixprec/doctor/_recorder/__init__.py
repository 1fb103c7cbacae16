"""In the script's process: listens to what the script does to torch and streams it to disk, changing nothing.

Every record is written when it is complete, so that a run that is killed has told what it did until then.
"""

from __future__ import annotations

from mixprec.doctor._recorder._start import start

__all__ = ["start"]
