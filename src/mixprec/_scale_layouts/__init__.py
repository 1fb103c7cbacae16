"""A saved loss scale is rules and a state; each system's checkpoint carries a part of them, and what it lacks is said.

`from_layout` reads what another system saved into a `ScaleCheckpoint`, `to_layout` writes one for another system. What
a layout does not carry is taken from that system's preset, or from rules that the caller knows to hold, and listed in
`assumed`; what the other system does not take over is listed in `Conversion.losses`. What is damaged is a
`CheckpointError`. Values may be Python numbers or anything of one element with `item()`, such as tensors.

    >>> saved = {"scale": 4096.0, "growth_tracker": 7, "hysteresis_tracker": 2}
    >>> detect(saved)
    'megatron'
    >>> conversion = to_layout("torch", from_layout("megatron", saved))
    >>> conversion.mapping["scale"], conversion.mapping["_growth_tracker"]
    (4096.0, 7)
    >>> [loss.what for loss in conversion.losses]
    ['min_scale', 'max_scale', 'hysteresis', 'allowance']
"""

from __future__ import annotations

from mixprec._scale_layouts._checkpoint import ScaleCheckpoint
from mixprec._scale_layouts._convert import LAYOUTS, Conversion, Loss, detect, from_layout, to_layout

__all__ = ["LAYOUTS", "Conversion", "Loss", "ScaleCheckpoint", "detect", "from_layout", "to_layout"]
