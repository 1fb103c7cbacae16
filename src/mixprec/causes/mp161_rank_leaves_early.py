"""MP161: one rank leaves the iteration on a test of its own before the collectives."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP161",
    name="rank-leaves-early",
    title="One rank leaves the iteration on a test of its own before the collectives.",
    symptom="Collectives pair up one step out of phase, then the run hangs or a connection is closed.",
    evidence=(
        "From one step on the number of backward calls differs between ranks, and there one rank's loss was not finite."
    ),
    fix="Reduce the flag over all ranks and leave together, or let the scaler skip the step.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/ecmwf/WeatherGenerator/issues/2718",
        "https://github.com/NVIDIA-NeMo/Automodel/issues/2468",
    ),
    related=("MP026", "MP160"),
)
