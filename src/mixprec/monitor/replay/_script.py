"""Replay of an unmodified script: its command runs again, three times, each up to the incident's step."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mixprec._script import Command, run_script
from mixprec.errors import CheckpointError, MixprecError
from mixprec.monitor.incident import Incident, load_incident, load_incidents
from mixprec.monitor.replay._look import descend
from mixprec.monitor.replay._result import Outcome, Replay, Traced, read_traced, same

__all__ = ["NotReachedError", "replay_script"]

_ENTRY = "mixprec.monitor.replay._child:enter"


class NotReachedError(MixprecError, RuntimeError):
    """The script ended, failed or ran out of time before the incident's step. `output` is the end of what it wrote."""

    def __init__(self, step: int, why: str, output: str) -> None:
        self.step = step
        self.output = output
        tail = "\n".join(output.splitlines()[-10:])
        super().__init__(f"Step {step} was not reached: {why}" + (f"\n{tail}" if tail else ""))


def replay_script(
    incident: Incident | str | Path,
    *,
    precision: str | None = None,
    deep: bool = False,
    timeout: float = 600.0,
    command: Command | None = None,
) -> Replay:
    """Reruns the incident's command up to its step and runs exactly that step: twice bare, once traced.

    The script builds model, loader and optimizer. First its second step is made the incident's: weights, buffers,
    optimizer, scaler, random states, loaded batches and the arguments of the model's calls are put in place. Where
    losses and gradients then are not those that were recorded (the step depends on more, say a target that the script
    indexes by its own counter), all steps before it are run as well, from the random states of the run's start.

    `command` replaces the recorded one, `timeout` is seconds per run.

    Raises: NotReachedError, CheckpointError.

    **Cost** three times the script's start-up and one or two steps; at worst all steps up to the incident.
    """
    incident = incident if isinstance(incident, Incident) else load_incident(incident)
    incident.verify()
    again = _Again(incident, precision, timeout, command or _command(incident))
    reach, notes = "jump", list(incident.facts["notes"])
    first = again.run(reach)
    if precision is None and incident.step and not _recorded(first, incident):
        reach = "run"
        first = again.run(reach)
        notes.append(f"reached by running all {incident.step} steps before it")
    with ThreadPoolExecutor(2) as both:
        repeated, looked = both.submit(again.run, reach), both.submit(again.trace, reach, deep)
    second, traced = repeated.result(), looked.result()
    if incident.step and _from_before(traced):
        earlier = again.trace("run", deep, previous=True)
        said = "weights or buffers were bad when the step began: the step before it was traced with it"
        bad = again.seek() if _from_before(earlier) else None
        if bad is not None:
            earlier = again.trace("run", deep, previous=True, step=bad + 1)
            said = f"weights or buffers were bad from step {bad} on: that step was traced"
        if not earlier.origin.clean:
            traced = earlier
            notes.append(said)
    try:
        avoiding = descend(traced, lambda scale: again.trace(reach, False, scale=scale))
    except NotReachedError:
        avoiding = None
        notes.append("at a smaller loss scale the script took another way, which ended before this step did")
    return Replay(
        incident=incident.folder.name,
        kind=incident.kind,
        step=incident.step,
        repeats=first.same_as(second),
        exact=precision is None and _recorded(first, incident),
        outcome=first,
        traced=traced,
        precision=precision,
        notes=(*notes, *first.differences),
        avoiding_scale=avoiding,
        rank=incident.rank,
    )


class _Again:
    """Runs of the incident's command."""

    def __init__(self, incident: Incident, precision: str | None, timeout: float, command: Command) -> None:
        self._incident, self._precision, self._timeout, self._command = incident, precision, timeout, command

    def run(self, reach: str) -> Outcome:
        """One bare run of the step."""
        found = self._found(self._run(reach, trace=False))
        return Outcome(
            tuple(float(loss) for loss in found["losses"]),
            found["gradients"],
            found["kind"],
            tuple(found["differences"]),
        )

    def seek(self) -> int | None:
        """The first step of the run after which a weight or buffer was not finite; None where none was."""
        found = self._run("run", trace=False, seek=True)
        return min((int(one["bad"]) for one in found if "bad" in one), default=None)

    def trace(
        self,
        reach: str,
        deep: bool,
        previous: bool = False,
        scale: float | None = None,
        step: int | None = None,
    ) -> Traced:
        """The step under the tracer, at another loss scale if one is given; as the rank at fault saw it."""
        found = self._run(reach, trace=True, deep=deep, previous=previous, scale=scale, step=step)
        own = self._found(found)
        others = [one for one in found if one is not own]
        seen = [dataclasses.replace(read_traced(one["traced"]), rank=one["rank"]) for one in (own, *others)]
        return next((traced for traced in seen if not traced.origin.clean), seen[0])

    def _run(
        self,
        reach: str,
        *,
        trace: bool,
        deep: bool = False,
        previous: bool = False,
        scale: float | None = None,
        seek: bool = False,
        step: int | None = None,
    ) -> list[dict[str, Any]]:
        options = {
            "incidents": [str(one.folder.resolve()) for one in _of_all_ranks(self._incident)],
            "reach": reach,
            "precision": self._precision,
            "trace": trace,
            "deep": deep,
            "previous": previous,
            "scale": scale,
            "seek": seek,
            "step": step,
        }
        with tempfile.TemporaryDirectory(prefix="mixprec-replay-") as folder:
            outcome = run_script(
                self._command,
                entry=_ENTRY,
                options=options,
                cwd=_folder_of(self._incident),
                timeout=self._timeout,
                folder=folder,
            )
            found = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).glob("*.replay.json")]
        if not any(one["reached"] for one in found):
            why = "the time limit was reached." if outcome.timed_out else f"the script ended ({outcome.returncode})."
            errors = [one["error"] for one in found if "error" in one]
            raise NotReachedError(
                self._incident.step, errors[0] if errors else why, "\n".join((*outcome.errors, outcome.output))
            )
        return [one for one in found if one["reached"]]

    def _found(self, found: list[dict[str, Any]]) -> Mapping[str, Any]:
        return next((one for one in found if one["rank"] == self._incident.rank), found[0])


def _of_all_ranks(incident: Incident) -> list[Incident]:
    """The incident first, then those of the other ranks at the same step."""
    others = [
        one
        for one in load_incidents(incident.folder.parent)
        if one.step == incident.step and one.rank != incident.rank and one.kind == incident.kind
    ]
    return [incident, *others]


def _recorded(outcome: Outcome, incident: Incident) -> bool:
    """Whether losses and gradients are, bit for bit, those of the recorded step; losses, where only they were saved."""
    if incident.facts["late"]:
        return same(outcome.losses, incident.losses)
    recorded = {
        f"{number}/{name}": sum_
        for number, root in enumerate(incident.facts["roots"])
        for name, sum_ in root["gradients"].items()
    }
    return same(outcome.losses, incident.losses) and dict(outcome.gradients) == recorded


def _from_before(traced: Traced) -> bool:
    """Whether the first thing at fault came into the step from outside."""
    origin = traced.origin
    return origin.given is not None and origin.first is origin.given


def _command(incident: Incident) -> Command:
    facts = incident.facts["command"]
    if not facts["argv"][0]:
        raise CheckpointError("command", "The incident was saved in an interactive session: there is no script to run.")
    return Command(tuple(facts["argv"]), facts["module"])


def _folder_of(incident: Incident) -> str:
    folder = str(incident.facts["command"]["cwd"])
    return folder if Path(folder).is_dir() else os.getcwd()
