"""A run that is stopped anywhere and resumed gives the same parameters as one that was not stopped.

Between windows that takes the scaler's state and the masters; inside a window also the gradients that are summed so
far, and they are saved then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from torch import Tensor

from mixprec._precision._window import Window
from mixprec._scaler import GradScaler
from mixprec.errors import CheckpointError

__all__ = ["VERSION", "check_header", "read_tensors", "read_window", "restore_scaler", "write_window"]

VERSION = 1

_KEYS = ("version", "mode", "scaler", "window", "gradients", "sums", "masters")


def check_header(state: Mapping[str, Any], mode: str, *, masters: bool, sums: bool) -> None:
    """Raises `CheckpointError` for a state of another version, another mode, or with keys missing."""
    for key in _KEYS:
        if key not in state:
            raise CheckpointError(key, f"{key} is missing: this is no state that Precision.state_dict() wrote.")
    if state["version"] != VERSION:
        advice = f"this mixprec reads version {VERSION}. Load it with the mixprec that wrote it."
        raise CheckpointError("version", f"version is {state['version']!r}; {advice}")
    if state["mode"] != mode:
        raise CheckpointError(
            "mode",
            f"mode is {state['mode']!r} in the checkpoint and {mode!r} here, so the run would not continue as it was. "
            "To change the precision on purpose, load the model and the optimizer and leave this state out.",
        )
    if sums != (state["sums"] is not None):
        advice = "Resume with the same drop_nonfinite."
        raise CheckpointError("sums", f"sums is {_kind(state['sums'])} in the checkpoint. {advice}")
    if masters != (state["masters"] is not None):
        raise CheckpointError(
            "masters", f"masters is {state['masters']!r} in the checkpoint, which is not of this mode."
        )


def write_window(window: Window) -> dict[str, Any]:
    """`window` as plain values."""
    return asdict(window)


def read_window(saved: Any, length: int) -> Window:
    """The window that was saved. Raises: CheckpointError where it is malformed, or of another length and not empty."""
    names = {field.name for field in fields(Window)}
    if not isinstance(saved, Mapping) or set(saved) != names:
        raise CheckpointError(
            "window", f"window is {saved!r} in the checkpoint; accepted are the keys {sorted(names)}."
        )
    window = Window(**saved)
    if window.length == length:
        return window
    if window.empty:
        return Window(length)
    raise CheckpointError(
        "window",
        f"The checkpoint was saved after micro-batch {window.done} of a window of {window.length}, and this window has "
        f"{length}. Resume with accumulate={window.length}; it can be changed between windows.",
    )


def read_tensors(key: str, saved: Any, parameters: Sequence[Tensor], *, empty: bool) -> list[Tensor | None]:
    """A tensor like its gradient, or None, per parameter; all None where `empty`. Raises: CheckpointError."""
    if empty:
        return [None] * len(parameters)
    if not isinstance(saved, Sequence) or len(saved) != len(parameters):
        count = len(saved) if isinstance(saved, Sequence) else saved
        problem = f"{key} has {count} entries in the checkpoint; the optimizers hold {len(parameters)} parameters."
        raise CheckpointError(key, problem)
    for index, (tensor, parameter) in enumerate(zip(saved, parameters, strict=True)):
        if tensor is not None and (tensor.shape, tensor.dtype) != (parameter.shape, parameter.dtype):
            problem = f"{tuple(tensor.shape)} {tensor.dtype}, the parameter {tuple(parameter.shape)} {parameter.dtype}"
            raise CheckpointError(f"{key}[{index}]", f"{key}[{index}] is {problem}.")
    pairs = zip(saved, parameters, strict=True)
    return [None if tensor is None else tensor.detach().clone().to(parameter.device) for tensor, parameter in pairs]


def restore_scaler(scaler: GradScaler, saved: Any) -> None:
    """Raises `CheckpointError` where `saved` is no state of a scaler."""
    try:
        scaler.load_state_dict(saved)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        name = error.args[0] if isinstance(error, KeyError) else getattr(error, "name", None)
        key = f"scaler.{name}" if name else "scaler"
        raise CheckpointError(key, f"{key} cannot be restored: {error}") from error


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
