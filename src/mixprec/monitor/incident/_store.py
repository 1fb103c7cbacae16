"""Incidents on disk are each whole, together bounded, and no trouble with them ever reaches training."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec.errors import InvalidValueError
from mixprec.monitor._silence import silent
from mixprec.monitor.incident import _environment as environment
from mixprec.monitor.incident._disk import new_folder, remove, size, sweep, write_json, write_tensors
from mixprec.monitor.incident._moment import Moment
from mixprec.monitor.incident._random import RandomStates
from mixprec.monitor.incident._sums import checksums
from mixprec.monitor.incident._tree import Writer
from mixprec.records import SCHEMA

__all__ = ["IncidentStore"]

Weights = Literal["save", "checksum"]

_SPARE = 64 << 20
"""Bytes that are left free on the disk."""


class IncidentStore:
    """Saves moments as incidents: folders of safetensors and JSON under `folder`, one per rank and step.

    - `max_incidents`, `max_bytes`: at most so many of this rank's are kept. The first is never removed, because what
      follows is often its consequence; of the others the oldest goes.
    - `keep_batches=False` leaves the calls' arguments and the loaded batches out, for data that must not be copied.
    - `weights="checksum"` saves no weights and no optimizer state but their check sums, for large models that can be
      loaded from `checkpoint` (a path, set it whenever one was written) and brought to the step from there.
    - `report` is told in words of everything that was not saved; by default a warning in the log `mixprec`.

    `save` never raises: a full disk or a batch that cannot be saved is reported.

    **Cost** nothing until `save`, which copies everything to the disk while training waits.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        max_incidents: int = 10,
        max_bytes: int = 4 << 30,
        keep_batches: bool = True,
        weights: Weights = "save",
        report: Callable[[str], None] | None = None,
    ) -> None:
        if max_incidents < 1:
            raise InvalidValueError("max_incidents", max_incidents, "1 or more")
        if weights not in ("save", "checksum"):
            raise InvalidValueError("weights", weights, "'save' or 'checksum'")
        self.folder = Path(folder)
        self.checkpoint: str | None = None
        self.initial: RandomStates | None = None
        self.keep_batches = keep_batches
        self._max_incidents = max_incidents
        self._max_bytes = max_bytes
        self._weights = weights
        self.report = report or logging.getLogger("mixprec").warning
        self._swept = False

    def save(self, moment: Moment) -> Path | None:
        """Writes one incident; its folder, or None where it could not be written (and `report` was told why).

        In a script that is being replayed nothing is written.
        """
        if silent():
            return None
        try:
            return self._save(moment)
        except Exception as error:  # evidence is worth less than the run
            self.report(f"The incident at step {moment.step} was not saved: {type(error).__name__}: {error}")
            return None

    def paths(self) -> list[Path]:
        """Incidents of this rank, oldest first."""
        number, _ = environment.rank()
        found = [path.parent for path in self.folder.glob(f"*-rank{number}*/incident.json")]
        return sorted(found, key=lambda path: (path / "incident.json").stat().st_mtime_ns)

    def _save(self, moment: Moment) -> Path | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._swept:
            sweep(self.folder)
            self._swept = True
        files, document = self._compose(moment)
        needed = sum(_bytes(tensors.values()) for tensors in files.values()) + (1 << 16)
        refused = self._make_room(needed)
        if refused:
            self.report(f"The incident at step {moment.step} was not saved: {refused}")
            return None
        final = self._free_name(moment)
        with new_folder(final) as place:
            document["files"] = {name: write_tensors(place / name, tensors) for name, tensors in files.items()}
            write_json(place / "incident.json", document)
        for what in document["left_out"]:
            self.report(f"Incident {final.name} was saved without {what}")
        return final

    def _free_name(self, moment: Moment) -> Path:
        number, _ = environment.rank()
        names = (f"step{moment.step:06d}-{moment.kind}-rank{number}{again}" for again in _again())
        return next(self.folder / name for name in names if not (self.folder / name).exists())

    def _make_room(self, needed: int) -> str:
        """Removes what has to go; the reason why there is no room, or nothing."""
        kept = self.paths()
        sizes = {path: size(path) for path in kept}
        if needed > self._max_bytes - (sizes[kept[0]] if kept else 0):
            return f"it takes {needed:,} bytes and max_bytes is {self._max_bytes:,}."
        while len(kept) > 1 and (
            len(kept) >= self._max_incidents or sum(sizes[path] for path in kept) + needed > self._max_bytes
        ):
            remove(kept.pop(1))
        if len(kept) >= self._max_incidents:
            return f"max_incidents is {self._max_incidents} and the first is kept."
        free = shutil.disk_usage(self.folder).free
        return f"it takes {needed:,} bytes and {free:,} are free on the disk." if free < needed + _SPARE else ""

    def _compose(self, moment: Moment) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """The tables of tensors by file, and the document that says what they are."""
        number, ranks = environment.rank()
        state, batches, chance = Writer(), Writer(), Writer()
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": moment.kind,
            "step": moment.step,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "at": moment.time or time.time(),
            "late": moment.late,
            "rank": number,
            "ranks": ranks,
            "losses": [state.write(loss) for loss in moment.losses],
            "scale": moment.scale,
            "region": moment.region,
            "optimizers": [
                {"class": type(optimizer).__qualname__, "state": state.write(_state(optimizer, moment), "optimizer")}
                for optimizer in (moment.optimizers if self._weights == "save" else ())
            ],
            "scaler": None
            if moment.scaler is None
            else state.write({**moment.scaler.state_dict(), **moment.scaling}, "scaler"),
            "initial": _written(chance, self.initial),
            "before": _written(chance, moment.before),
            "at_forward": _written(chance, moment.at_forward),
            "checkpoint": self.checkpoint,
            "command": environment.command(),
            "versions": environment.versions(),
            "switches": environment.switches(),
        }
        weights: dict[str, Tensor] = {}
        document["roots"] = [self._root(n, root, moment, weights) for n, root in enumerate(moment.roots)]
        self._write_batches(moment, batches, document)
        document["left_out"] = [what for writer in (state, batches) for what in writer.left_out]
        document["notes"] = [*moment.notes, *(f"not saved: {what}" for what in document["left_out"])]
        files = {"weights": weights, "state": state.tensors, "batches": batches.tensors, "random": chance.tensors}
        return {f"{name}.safetensors": tensors for name, tensors in files.items()}, document

    def _write_batches(self, moment: Moment, batches: Writer, document: dict[str, Any]) -> None:
        calls, loaded = (moment.calls, moment.loaded) if self.keep_batches else ((), ())
        document["keeps_batches"] = self.keep_batches
        document["calls"] = [
            {
                "root": call.root,
                "args": batches.write(list(call.args), "batch"),
                "kwargs": batches.write(dict(call.kwargs), "batch"),
            }
            for call in calls
        ]
        document["loaded"] = [batches.write(batch, "loaded batch") for batch in loaded]

    def _root(self, number: int, root: nn.Module, moment: Moment, weights: dict[str, Tensor]) -> dict[str, Any]:
        """What is to be known of a root; its tensors go into `weights` as `number/name`, each memory once."""
        buffers = moment.buffers[number] if number < len(moment.buffers) else {}
        copies = moment.weights.get(id(root), {})
        parameters = root.named_parameters(remove_duplicate=False)
        named: dict[str, Tensor] = {name: copies.get(id(parameter), parameter) for name, parameter in parameters}
        named.update({name: buffers.get(name, b) for name, b in root.named_buffers(remove_duplicate=False)})
        first: dict[int, str] = {}
        alias: dict[str, str] = {}
        own: dict[str, Tensor] = {}
        for name, tensor in named.items():
            known = first.setdefault(id(tensor), name)
            if known != name:
                alias[name] = known
                continue
            own[name] = getattr(tensor, "_local_tensor", tensor).detach()
        facts: dict[str, Any] = {
            "class": type(root).__qualname__,
            "names": list(own),
            "alias": alias,
            "evaluating": [name for name, module in root.named_modules() if not module.training],
            "gradients": {} if moment.late else checksums(_gradients(root)),
            "frozen": [name for name, parameter in root.named_parameters() if not parameter.requires_grad],
        }
        if self._weights == "save":
            weights.update({f"{number}/{name}": tensor for name, tensor in own.items()})
        else:
            facts["checksums"] = checksums(own)
            kept = {f"{number}/{name}": t for name, t in own.items() if name in buffers}
            weights.update(kept)
        return facts


def _state(optimizer: Optimizer, moment: Moment) -> dict[str, Any]:
    """The optimizer's state as the step began with it."""
    return moment.states.get(id(optimizer)) or optimizer.state_dict()


def _gradients(root: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in root.named_parameters() if parameter.grad is not None}


def _again() -> Iterable[str]:
    yield ""
    yield from (f"-{n}" for n in range(2, 10_000))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _written(writer: Writer, states: RandomStates | None) -> Any:
    if states is None:
        return None
    facts: Mapping[str, Any] = {
        "python": states.python,
        "numpy": states.numpy,
        "torch": states.torch,
        "devices": dict(states.devices),
    }
    return writer.write(facts)
