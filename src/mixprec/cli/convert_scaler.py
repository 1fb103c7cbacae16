"""Convert a saved loss scale between PyTorch, Apex, DeepSpeed, Megatron and mixprec.

What the other system does not take over is listed, never dropped in silence.
"""

from __future__ import annotations

import json as standard_json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from mixprec._scale_layouts import LAYOUTS, Conversion, Loss, ScaleCheckpoint, detect, from_layout, to_layout
from mixprec.cli._options import format_option
from mixprec.errors import CheckpointError
from mixprec.report import json, text

__all__ = ["command"]


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--to", "layout", type=click.Choice(LAYOUTS), required=True, help="The layout to write.")
@click.option("--from", "origin", type=click.Choice(LAYOUTS), help="The layout to read; found out by default.")
@click.option("--key", help="Where the scaler's state is in SOURCE, as in 'trainer.scaler'; found out by default.")
@format_option()
def command(source: Path, target: Path | None, layout: str, origin: str | None, key: str | None, output: str) -> None:
    """Read the loss scale saved in SOURCE and write it to TARGET in another system's layout.

    Files that end in .json are JSON, others are PyTorch checkpoints (read with weights_only=True, which needs torch).
    Without TARGET nothing is written: the conversion and its losses are shown.
    """
    place, mapping = _find(_load(source), key)
    origin = origin or detect(mapping)
    checkpoint = from_layout(origin, mapping)
    conversion = to_layout(layout, checkpoint)
    if target is not None:
        _save(target, layout, conversion)
    if output == "json":
        click.echo(
            json.document(
                source=str(source),
                key=place,
                origin=origin,
                target=None if target is None else str(target),
                layout=layout,
                mapping=conversion.mapping,
                assumed=checkpoint.assumed,
                losses=conversion.losses,
            )
        )
    else:
        _print(place, origin, layout, target, checkpoint, conversion)


def _load(path: Path) -> Mapping[str, Any]:
    content = _load_json(path) if path.suffix == ".json" else _load_torch(path)
    if not isinstance(content, Mapping):
        raise CheckpointError("", f"{path} holds a {type(content).__name__}; accepted is a mapping.")
    return content


def _load_json(path: Path) -> Any:
    try:
        return standard_json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError("", f"{path} is no JSON: {error}.") from error


def _load_torch(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file of another kind makes torch raise is the same to the user
        first = str(error).partition("\n")[0].partition(". ")[0]  # the second sentence advises to load it unsafely
        raise CheckpointError("", f"torch.load(weights_only=True) cannot read {path}: {first}.") from error


def _save(path: Path, layout: str, conversion: Conversion) -> None:
    if path.suffix == ".json":
        path.write_text(standard_json.dumps(conversion.mapping, indent=2) + "\n", encoding="utf-8")
        return
    import torch

    mapping = dict(conversion.mapping)
    if layout == "megatron":
        mapping["scale"] = torch.tensor([mapping["scale"]], dtype=torch.float32)  # it loads no other type and shape
    torch.save(mapping, path)


def _find(content: Mapping[str, Any], key: str | None) -> tuple[str, Mapping[str, Any]]:
    """Where the scaler's state is, and the state. Raises `CheckpointError` where there is none, or more than one."""
    if key is not None:
        return key, _at(content, key)
    found = list(_states(content, ""))
    if not found:
        detect(content)  # says what is known and what was there instead
    if len(found) > 1:
        places = ", ".join(repr(place) for place, _ in found)
        raise CheckpointError("", f"There is a loss scale at {places}: choose one with --key.")
    return found[0]


def _at(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value: Any = content
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(map(repr, value)) if isinstance(value, Mapping) else "no mapping"
            raise CheckpointError(key, f"--key {key}: there is no {name!r}; there is {known}.")
        value = value[name]
    if not isinstance(value, Mapping):
        raise CheckpointError(key, f"--key {key}: a {type(value).__name__} is there; accepted is a mapping.")
    return value


def _states(content: Mapping[str, Any], place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping inside `content` that is in a known layout, the outermost first."""
    if _is_layout(content):
        yield place, content
        return
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from _states(value, f"{place}.{name}" if place else str(name))


def _is_layout(mapping: Mapping[str, Any]) -> bool:
    try:
        detect(mapping)
    except CheckpointError:
        return False
    return True


def _print(
    place: str, origin: str, layout: str, target: Path | None, checkpoint: ScaleCheckpoint, conversion: Conversion
) -> None:
    screen = text.console()
    where = f" at {place!r}" if place else ""
    screen.print(f"{origin}{where} to {layout}{f', written to {target}' if target else ''}", style="bold")
    screen.print(text.pairs([(name, _shown(value)) for name, value in _flat(conversion.mapping)]))
    if checkpoint.assumed and origin != layout:
        screen.print(f"\nAssumed, since {origin} does not save it: {', '.join(checkpoint.assumed)}")
    if conversion.losses:
        screen.print(f"\nNot taken over by {layout}:", style="bold")
        screen.print(text.table(("what", "here", "there", "set it with"), map(_loss_row, conversion.losses)))


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _loss_row(loss: Loss) -> tuple[str, ...]:
    return (loss.what, _shown(loss.here), _shown(loss.there), loss.remedy)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(getattr(value, "value", value))
