"""Taps hear what a training script does to torch, without a change to the script or to what torch computes."""

from __future__ import annotations

from mixprec._taps._listen import Listening, listen
from mixprec._taps._listener import Listener

__all__ = ["Listener", "Listening", "listen"]
