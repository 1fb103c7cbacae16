"""Who asked for an op is read off the frames below it: the user's line, and whether torch's backward engine, activation
checkpointing or the optimizer's phase stands between the two.

Frames are walked and nothing is kept of them but file and line. **Cost** one dictionary look-up per frame.
"""

from __future__ import annotations

import enum
import sys
from types import CodeType, FrameType
from typing import NamedTuple

from mixprec._trace._site import is_user_file

__all__ = ["Asked", "asked", "in_compiled_function"]


class _Tag(enum.Enum):
    PASS = 0
    USER = 1
    ENGINE = 2
    CHECKPOINT = 3
    REENTRANT = 4
    OPTIMIZER = 5
    WATCHER = 6


class Asked(NamedTuple):
    """Who asked: the user's line nearest to the op, and what was passed on the way to it.

    In backward `file` is None unless user code runs inside the engine: a custom function, a hook, a recompute.
    `watcher`: a monitor of ours asked, whose ops are no part of the step.
    """

    file: str | None
    line: int | None
    recompute: bool = False
    reentrant: bool = False
    optimizer: bool = False
    watcher: bool = False


_tags: dict[CodeType, _Tag] = {}

_SCALER_PHASE = frozenset({"step", "unscale_", "update", "_unscale_grads_", "_maybe_opt_step", "_unscale"})


def asked(backward: bool) -> Asked:
    """Walks the frames below the dispatch mode; with `backward`, no farther than to torch's engine."""
    frame: FrameType | None = sys._getframe(2)
    file: str | None = None
    line: int | None = None
    recompute = reentrant = optimizer = engine = False
    while frame is not None:
        tag = _tag(frame.f_code)
        if tag is _Tag.USER and not engine:
            if file is None:
                file, line = frame.f_code.co_filename, frame.f_lineno
            if not backward:
                break
        elif tag is _Tag.WATCHER:
            if file is None and not engine:
                return Asked(None, None, watcher=True)
        elif tag is _Tag.OPTIMIZER:
            optimizer = True
        elif tag is _Tag.CHECKPOINT:
            recompute = recompute or not engine
        elif tag is _Tag.REENTRANT:
            if engine:
                reentrant = True
                break
            recompute = reentrant = True
        elif tag is _Tag.ENGINE:
            if engine:
                break
            engine = True
        frame = frame.f_back
    return Asked(file, line, recompute, reentrant, optimizer)


def in_compiled_function() -> bool:
    """Whether the caller runs inside a function or module that `torch.compile` wrapped. **Cost** a walk to the end."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("eval_frame.py"):
            context = frame.f_locals.get("self")  # torch's own `disable` leaves such frames too
            if type(context).__name__ in ("OptimizeContext", "OptimizedModule"):
                return True
        frame = frame.f_back
    return False


def _tag(code: CodeType) -> _Tag:
    tag = _tags.get(code)
    if tag is None:
        tag = _tags[code] = _read(code.co_filename.replace("\\", "/"), code.co_name)
    return tag


def _read(file: str, name: str) -> _Tag:
    """What a function of this name in this file does between an op and the user's line."""
    if is_user_file(file):
        return _Tag.USER
    if "/mixprec/monitor/" in file:
        return _Tag.WATCHER
    if file.endswith("torch/autograd/graph.py") and name == "_engine_run_backward":
        return _Tag.ENGINE
    if file.endswith("torch/utils/checkpoint.py"):
        if name == "backward":
            return _Tag.REENTRANT
        return _Tag.CHECKPOINT if name in ("recompute_fn", "unpack_hook") else _Tag.PASS
    if "/torch/optim/" in file or file.endswith("torch/nn/utils/clip_grad.py"):
        return _Tag.OPTIMIZER
    if file.endswith(("/grad_scaler.py", "/sharded_grad_scaler.py")) or "mixprec/_scaler" in file:
        return _Tag.OPTIMIZER if name in _SCALER_PHASE else _Tag.PASS
    return _Tag.OPTIMIZER if "mixprec/_gradients" in file else _Tag.PASS
