"""A folder on disk is either whole or not there: written under another name, flushed to the disk, renamed.

Who is killed on the way leaves a folder whose name starts with `.writing-`, which no reader looks at and the next
writer removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

__all__ = ["WRITING", "digest", "new_folder", "remove", "size", "sweep", "write_json", "write_tensors"]

WRITING = ".writing-"


@contextlib.contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder to write into, which is renamed to `final` if the block ends well and removed if it does not."""
    place = final.with_name(f"{WRITING}{os.getpid()}-{final.name}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
        _flush(place)
        place.rename(final)
        _flush(final.parent)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def write_json(path: Path, document: Any) -> None:
    """Writes and flushes one JSON file."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(document, file, allow_nan=False, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Writes and flushes one safetensors file; its size and SHA-256.

    **Cost** a copy of each tensor that is not on the CPU, not contiguous or a view of a larger memory.
    """
    save_file({name: _alone(tensor) for name, tensor in tensors.items()}, path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest(path)}


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def remove(folder: Path) -> None:
    """Removes a folder; killed on the way, it is not taken for a whole one."""
    doomed = folder.with_name(f"{WRITING}{os.getpid()}-gone-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes what processes that no longer run left half written."""
    for path in folder.glob(f"{WRITING}*"):
        number = path.name.removeprefix(WRITING).partition("-")[0]
        if not (number.isdigit() and _runs(int(number))):
            shutil.rmtree(path, ignore_errors=True)


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _alone(tensor: Tensor) -> Tensor:
    """The same numbers on the CPU, in memory that no other tensor shares (safetensors writes no two of one memory)."""
    there = tensor.detach().to("cpu").contiguous()
    return there.clone() if there.data_ptr() == tensor.data_ptr() and there.numel() else there


def _flush(folder: Path) -> None:
    """Makes names in a folder durable; a system without such a call does it when it likes."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
