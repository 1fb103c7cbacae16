"""An incident as read from disk: facts at once, tensors when asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from mixprec.errors import CheckpointError
from mixprec.monitor.incident._disk import digest
from mixprec.monitor.incident._random import RandomStates
from mixprec.monitor.incident._tree import Reader

__all__ = ["Incident", "load_incident", "load_incidents"]


@dataclass(frozen=True)
class Incident:
    """One incident: `folder`, and `facts`, the document `incident.json` in it (docs/replay.md lists its entries)."""

    folder: Path
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        """`skipped`, `loss`, or what a caller named it."""
        return str(self.facts["kind"])

    @property
    def step(self) -> int:
        """Which step of the run, counted from 0."""
        return int(self.facts["step"])

    @property
    def rank(self) -> int:
        """The rank that saved it."""
        return int(self.facts["rank"])

    @property
    def scale(self) -> float | None:
        """The loss scale of the step; None without a scaler."""
        scale: float | None = self.facts["scale"]
        return scale

    @cached_property
    def losses(self) -> tuple[float, ...]:
        """What `backward` was called on, unscaled."""
        return tuple(Reader({}).read(loss) for loss in self.facts["losses"])

    def random(self, when: str) -> RandomStates | None:
        """The random states at `initial` (start of the run), `before` (the step) or `at_forward`; None if unknown."""
        node = self.facts[when]
        if node is None:
            return None
        return RandomStates(**Reader(self.tensors("random"), "cpu").read(node))

    def weights(self, root: int) -> dict[str, Tensor]:
        """Parameters and buffers of a root by name, on the CPU; aliases are not repeated."""
        start = f"{root}/"
        table = self.tensors("weights")
        return {name.removeprefix(start): tensor for name, tensor in table.items() if name.startswith(start)}

    def optimizers(self, device: str | None = None) -> list[dict[str, Any]]:
        """`state_dict` of each optimizer, in the order in which they came."""
        reader = Reader(self.tensors("state"), device)
        return [reader.read(one["state"]) for one in self.facts["optimizers"]]

    def scaler(self) -> dict[str, Any] | None:
        """`state_dict` of the scaler before the step; None without one."""
        state: dict[str, Any] | None = Reader(self.tensors("state")).read(self.facts["scaler"])
        return state

    def calls(self, device: str | None = None) -> list[tuple[int, tuple[Any, ...], dict[str, Any]]]:
        """(root, args, kwargs) of each call in order; `device=None` puts tensors where they were."""
        reader = Reader(self.tensors("batches"), device)
        return [
            (one["root"], tuple(reader.read(one["args"])), reader.read(one["kwargs"])) for one in self.facts["calls"]
        ]

    def loaded(self, device: str | None = None) -> list[Any]:
        """The batches that a DataLoader handed out for this step."""
        reader = Reader(self.tensors("batches"), device)
        return [reader.read(node) for node in self.facts["loaded"]]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The table in the file `name`.safetensors, on the CPU."""
        tables: dict[str, dict[str, Tensor]] = self.__dict__.setdefault("_tables", {})
        if name not in tables:
            tables[name] = load_file(self.folder / f"{name}.safetensors")
        return tables[name]

    def verify(self) -> None:
        """Raises CheckpointError naming the first file that is missing or not the one that was written."""
        for name, facts in self.facts["files"].items():
            path = self.folder / name
            if not path.is_file() or digest(path) != facts["sha256"]:
                raise CheckpointError(name, f"{path} is missing or is not the file that was written with the incident.")


def load_incident(folder: str | Path) -> Incident:
    """The incident in `folder`. Raises: CheckpointError where there is none."""
    path = Path(folder) / "incident.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            "incident.json", f"{folder} is no incident ({error}). Name a folder that holds an incident.json."
        ) from error
    return Incident(Path(folder), facts)


def load_incidents(folder: str | Path) -> list[Incident]:
    """Every incident below `folder`, in the order of steps and ranks."""
    found = [load_incident(path.parent) for path in Path(folder).glob("**/incident.json") if not _unfinished(path)]
    return sorted(found, key=lambda incident: (incident.step, incident.rank))


def _unfinished(path: Path) -> bool:
    return any(part.startswith(".writing-") for part in path.parts)
