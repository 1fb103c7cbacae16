"""Convert the weights in a checkpoint to 16 bits, with a check that no value overflows or is lost.

A tensor that does not survive stays float32 and is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mixprec.cli._options import format_option
from mixprec.errors import CheckpointError, MissingExtraError
from mixprec.report import json, text

if TYPE_CHECKING:
    from torch import Tensor

    from mixprec._convert import Survival

__all__ = ["command"]


@click.command()
@click.argument("checkpoint", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--to", "name", type=click.Choice(("fp16", "bf16")), default="fp16", show_default=True)
@click.option("--keep", multiple=True, metavar="GLOB", help="Tensors that stay as they are, such as '*.norm.*'.")
@click.option("--key", help="Where the weights are in CHECKPOINT, as in 'state.model'; found out by default.")
@format_option()
@click.pass_context
def command(
    context: click.Context,
    checkpoint: Path,
    target: Path | None,
    name: str,
    keep: tuple[str, ...],
    key: str | None,
    output: str,
) -> None:
    """Cast the float32 tensors of CHECKPOINT and write them to TARGET; without TARGET only check.

    Files that end in .safetensors are that, others are PyTorch checkpoints (read with weights_only=True). Exit code 1:
    tensors do not survive the cast and stay float32.
    """
    from mixprec._convert._converted import dtype_named

    place, weights = _weights(_load(checkpoint), key)
    dtype = dtype_named(name)
    written, found = _cast(weights, dtype, keep)
    lost = {tensor: each for tensor, each in found.items() if not each.survives}
    if target is not None:
        _save(target, written)
    before, after = (sum(t.numel() * t.element_size() for t in each.values()) for each in (weights, written))
    if output == "json":
        click.echo(
            json.document(
                checkpoint=str(checkpoint),
                key=place,
                target=None if target is None else str(target),
                dtype=name,
                tensors=len(weights),
                cast=len(found) - len(lost),
                bytes_before=before,
                bytes_after=after,
                kept=[{"name": tensor, "reason": each.reason, "survival": each} for tensor, each in lost.items()],
            )
        )
    else:
        _print(checkpoint, target, name, len(weights), found, lost, (before, after))
    context.exit(1 if lost else 0)


def _cast(
    weights: Mapping[str, Tensor], dtype: Any, keep: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Survival]]:
    """The tensors to write, and what the cast does to each that is float32."""
    import torch

    from mixprec._convert import survival

    found = {
        name: survival(tensor, dtype)
        for name, tensor in weights.items()
        if tensor.dtype in (torch.float32, torch.float64) and not any(fnmatch(name, glob) for glob in keep)
    }
    written = {n: t.to(dtype) if n in found and found[n].survives else t for n, t in weights.items()}
    return written, found


def _load(path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ModuleNotFoundError as error:
            raise MissingExtraError("safetensors", "convert", "Reading .safetensors") from error
        return load_file(path)
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file of another kind makes torch raise is the same to the user
        first = str(error).partition("\n")[0].partition(". ")[0]  # the second sentence advises to load it unsafely
        raise CheckpointError("", f"torch.load(weights_only=True) cannot read {path}: {first}.") from error


def _save(path: Path, weights: dict[str, Tensor]) -> None:
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import save_file
        except ModuleNotFoundError as error:
            raise MissingExtraError("safetensors", "convert", "Writing .safetensors") from error
        save_file({name: tensor.contiguous().clone() for name, tensor in weights.items()}, path, {"format": "pt"})
        return
    import torch

    torch.save(weights, path)


def _weights(content: Any, key: str | None) -> tuple[str, dict[str, Tensor]]:
    """Where the weights are, and the weights. Raises `CheckpointError` where there are none, or several."""
    found = dict(_states(content, ""))
    if key is not None:
        if key not in found:
            raise CheckpointError(key, f"--key {key}: there are no weights; there are at {_places(found)}.")
        return key, found[key]
    if len(found) != 1:
        advice = f"choose one of {_places(found)} with --key" if found else "accepted is a mapping of names to tensors"
        raise CheckpointError("", f"There are {len(found)} sets of weights in the file: {advice}.")
    return next(iter(found.items()))


def _states(content: Any, place: str) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Every mapping in which names stand for tensors and for nothing else, the outermost first."""
    import torch

    if not isinstance(content, Mapping):
        return
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if tensors and len(tensors) == len(content) and all(isinstance(name, str) for name in content):
        yield place, tensors
        return
    for name, value in content.items():
        yield from _states(value, f"{place}.{name}" if place else str(name))


def _places(found: Mapping[str, Any]) -> str:
    return ", ".join(repr(place) for place in found) or "no place"


def _print(
    checkpoint: Path,
    target: Path | None,
    name: str,
    total: int,
    found: Mapping[str, Survival],
    lost: Mapping[str, Survival],
    sizes: tuple[int, int],
) -> None:
    screen = text.console()
    before, after = (size / 2**20 for size in sizes)
    where = f", written to {target}" if target else ""
    screen.print(f"{checkpoint} to {name}{where}", style="bold", soft_wrap=True)
    screen.print(f"{len(found) - len(lost)} of {total} tensors cast; {before:.1f} MiB become {after:.1f} MiB.")
    flushed = sum(each.flushed for each in found.values())
    worst = max((each.relative_error for each in found.values() if each.survives), default=0.0)
    screen.print(f"{flushed} values flushed to zero; largest relative error of a tensor that was cast {worst:.2g}.")
    if lost:
        screen.print("\nLeft in float32:", style="bold")
        screen.print(text.table(("tensor", "why"), [(tensor, each.reason) for tensor, each in lost.items()]))
